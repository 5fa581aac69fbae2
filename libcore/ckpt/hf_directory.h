// A Hugging Face directory, complete enough to generate from: config.json, generation_config.json, the weights, and the
// tokenizer's files where it is known.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "libcore/base/fields.h"
#include "libcore/ckpt/model_source.h"

namespace rw {

struct HfExportSpec {
  std::string output;                         // directory
  std::string dtype = "f32";                  // f32, bf16, f16
  int64_t max_shard_size = int64_t{5} << 30;  // bytes
  bool force = false;                         // into a directory that holds files
};
FieldList fields(HfExportSpec& spec);

// Error{usage} when the directory holds files and `force` is not set. `progress(done, total)` in bytes of weights, or
// null.
void export_hf(const ModelSource& model, const HfExportSpec& spec,
               const std::function<void(int64_t, int64_t)>& progress);

}  // namespace rw
