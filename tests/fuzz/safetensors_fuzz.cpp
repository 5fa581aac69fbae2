// A safetensors file: any bytes either parse to tensors that lie inside the file, or give an Error.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/formats/safetensors_header.h"
#include "libcore/tensor/elements.h"

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  using namespace rw;
  try {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const int64_t file_bytes = static_cast<int64_t>(size);
    std::string last;
    for (const SafetensorsEntry& e : parse_safetensors_header(bytes, file_bytes, "fuzz")) {
      if (e.begin < 8 || e.begin > e.end || e.end > file_bytes) std::abort();
      if (e.info.name < last) std::abort();
      last = e.info.name;
      if (!e.readable) continue;
      if (e.end - e.begin != n_elements(e.info.shape) * dtype_bytes(e.info.dtype)) std::abort();
      std::vector<float> values(static_cast<size_t>(n_elements(e.info.shape)));
      const Box box = whole(e.info.shape);
      copy_part(box, {data + e.begin, e.info.dtype, box}, values.data(), DType::f32, box);
    }
  } catch (const Error&) {
    // The answer to bytes that are no safetensors file.
  }
}
