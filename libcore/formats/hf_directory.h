// A Hugging Face directory, complete enough to generate from: config.json, generation_config.json, the weights, the
// tokenizer's files where it is known, and rankwright.json, which says what it is (hf_identity.h).
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "libcore/base/fields.h"
#include "libcore/formats/model_source.h"

namespace rw {

struct HfExportSpec {
  std::string output;                         // directory; empty: named after what it holds (artifact_name())
  std::string dtype = "f32";                  // f32, bf16, f16
  int64_t max_shard_size = int64_t{5} << 30;  // bytes
  int64_t memory = int64_t{1} << 30;          // bytes of tensors held at a time
  bool optimizer = false;                     // the rest of the training state too (hf_optimizer.h)
  bool force = false;                         // replace an earlier export
};
FieldList fields(HfExportSpec& spec);

struct HfExport {
  std::filesystem::path dir;
  int64_t bytes = 0;  // of tensors
};
// Error{usage} when the directory holds files and `force` is not set, or files that are not of an export. The directory
// gets its name when all is written; an older one is there until then. The weights' bytes depend on nothing but their
// values: not on the layout that saved them. `progress(done, total)` in bytes of tensors, or null.
HfExport export_hf(const ModelSource& model, const HfExportSpec& spec,
                   const std::function<void(int64_t, int64_t)>& progress);

}  // namespace rw
