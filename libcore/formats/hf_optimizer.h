// The rest of a training state beside exported weights: optimizer.safetensors with both moments of every parameter
// ("adam.m/NAME", "adam.v/NAME", whole, f32, our names) and, where the weights are not f32, the masters
// ("master/NAME"); optimizer.json with the checkpoint's identity and state. With it an export is a checkpoint again.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/formats/model_source.h"
#include "libcore/formats/safetensors.h"

namespace rw {

constexpr const char* kOptimizerStem = "optimizer";
constexpr const char* kOptimizerState = "optimizer.json";

// What goes into optimizer.safetensors. `model` outlives it. Error{usage} when it has no optimizer state.
std::vector<ExportTensor> optimizer_tensors(const ModelSource& model, DType weights);
// The text of optimizer.json; the tokenizer is in the directory's own files.
std::string optimizer_state(const ModelSource& model);

// What a Hugging Face directory is as a checkpoint.
enum class HfImportPart {
  weights,  // a checkpoint of weights alone, with an identity of its own, whatever lies beside them
  all,      // the moments and the state too
};
bool holds_optimizer(const std::filesystem::path& dir);
struct HfImport {
  ModelSource model;                      // as it lies there
  std::unique_ptr<TensorSource> tensors;  // its parameters, from the masters where there are, and the moments; of model
  int64_t step = 0;
  std::string identity, state;  // JSON texts
};
// Error{usage} when all is asked for and weights alone are there; Error{input} when what is there does not fit
// together; Error{verdict} as check_artifact() (hf_identity.h).
HfImport import_hf(const std::filesystem::path& dir, HfImportPart part);
// optimizer.safetensors, or several of them with their index.
std::unique_ptr<TensorSource> open_optimizer(const std::filesystem::path& dir);

}  // namespace rw
