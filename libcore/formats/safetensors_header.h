// The header of a safetensors file, checked at the door: everything after it may trust its numbers.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/tensor/source.h"

namespace rw {

struct SafetensorsEntry {
  TensorInfo info;         // dtype: ours of the same width where we have none of that kind
  std::string file_dtype;  // as the file says it: "F32", "BF16", "BOOL", ...
  bool readable;           // F64, F32, F16, BF16, I64
  int64_t begin, end;      // bytes from the start of the file
};

// `bytes`: at least the start of the file up to the end of its header; `file_bytes`: the whole file's size. Entries are
// sorted by name. Error{input} names `where`, the tensor, what was expected and what was found.
std::vector<SafetensorsEntry> parse_safetensors_header(std::string_view bytes, int64_t file_bytes,
                                                       const std::string& where);

}  // namespace rw
