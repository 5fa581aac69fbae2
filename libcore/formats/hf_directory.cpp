#include "libcore/formats/hf_directory.h"

#include <nlohmann/json.hpp>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/hf_layout.h"
#include "libcore/formats/hf_optimizer.h"
#include "libcore/formats/hf_stage.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/elements.h"
#include "libcore/text/tokenizer.h"

namespace rw {

namespace fs = std::filesystem;

FieldList fields(HfExportSpec& spec) {
  return {
      {.name = "output",
       .value = &spec.output,
       .help = "directory to write (-o); when not given, named after model, run, step and dtype"},
      {.name = "dtype", .value = &spec.dtype, .help = "element type of the weights", .choices = {"f32", "bf16", "f16"}},
      {.name = "max-shard-size",
       .value = &spec.max_shard_size,
       .help = "largest file, bytes",
       .min = 1,
       .is_size = true},
      {.name = "memory",
       .value = &spec.memory,
       .help = "most that is held of tensors, bytes",
       .min = 1,
       .is_size = true},
      {.name = "optimizer",
       .value = &spec.optimizer,
       .help = "the optimizer's moments and the run's state too (optimizer.safetensors, optimizer.json); without it "
               "weights "
               "alone are written, or taken"},
      {.name = "force", .value = &spec.force, .help = "replace an earlier export or checkpoint in the directory"},
  };
}

namespace {

// Files that an export consists of, and what people put beside them that transformers reads.
bool is_export_file(const std::string& name) {
  static constexpr std::string_view kNames[] = {
      "config.json",   "generation_config.json", "tokenizer.json",        "tokenizer_config.json",  kArtifactName,
      kOptimizerState, "model.safetensors",      "optimizer.safetensors", "special_tokens_map.json"};
  for (const std::string_view known : kNames)
    if (name == known) return true;
  return (name.starts_with("model") || name.starts_with(kOptimizerStem)) &&
         (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json"));
}

const char* torch_name(DType t) { return t == DType::f32 ? "float32" : t == DType::bf16 ? "bfloat16" : "float16"; }

void write_json(const fs::path& file, const Json& content) { write_file_atomic(file, content.dump(2) + "\n"); }

// Without it transformers would pick the tokenizer class of the model type, which expects that model's own special
// tokens.
Json tokenizer_config(const Tokenizer& tokenizer, const ModelSpec& spec) {
  Json config = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"model_max_length", spec.max_position}};
  const auto name = [&](const char* key, int64_t id) {
    const std::string_view token = id < 0 ? std::string_view() : tokenizer.token_bytes(static_cast<int32_t>(id));
    if (!token.empty()) config[key] = std::string(token);
  };
  name("bos_token", spec.bos_id);
  name("eos_token", spec.eos_id >= 0 ? spec.eos_id : tokenizer.end_of_text());
  return config;
}

// Writes the tokenizer's files and returns its end-of-text id, or -1.
int64_t write_tokenizer(const ModelSource& model, const fs::path& dir) {
  if (model.tokenizer_json.empty()) return -1;
  const auto tokenizer = parse_tokenizer(model.tokenizer_json, model.weights->where() + ": tokenizer");
  write_file_atomic(dir / "tokenizer.json", model.tokenizer_json);
  if (model.tokenizer_config_json.empty())
    write_json(dir / "tokenizer_config.json", tokenizer_config(*tokenizer, model.spec));
  else write_file_atomic(dir / "tokenizer_config.json", model.tokenizer_config_json);
  return tokenizer->end_of_text();
}

int64_t bytes_of(const std::vector<ExportTensor>& tensors) {
  int64_t bytes = 0;
  for (const ExportTensor& t : tensors) bytes += n_elements(t.shape) * dtype_bytes(t.dtype);
  return bytes;
}

// Tells `add` the bytes as they are produced.
void count_bytes(std::vector<ExportTensor>& tensors, const std::function<void(int64_t)>& add) {
  for (ExportTensor& t : tensors) {
    t.read = [read = std::move(t.read), width = dtype_bytes(t.dtype), &add](const Box& rows, void* dst) {
      read(rows, dst);
      add(rows.size() * width);
    };
  }
}

void write_configs(const ModelSource& model, DType dtype, const fs::path& dir) {
  const int64_t end_of_text = write_tokenizer(model, dir);
  Json config = parse_json(model.config_json, model.weights->where() + ": config.json");
  config.erase("dtype");
  config["torch_dtype"] = torch_name(dtype);  // the key that every version of transformers reads
  write_json(dir / "config.json", config);
  Json generation = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id"}) {
    const auto id = config.find(key);
    if (id != config.end() && !id->is_null()) generation[key] = *id;
  }
  if (end_of_text >= 0 && !generation.contains("eos_token_id")) generation["eos_token_id"] = end_of_text;
  write_json(dir / "generation_config.json", generation);
}

}  // namespace

HfExport export_hf(const ModelSource& model, const HfExportSpec& spec,
                   const std::function<void(int64_t, int64_t)>& progress) {
  DType dtype;
  if (!dtype_from_name(spec.dtype.c_str(), dtype))
    fail(ErrorKind::usage, "dtype: expected f32, bf16 or f16, found {}", spec.dtype);
  if (spec.optimizer && model.checkpoint.empty())
    fail(ErrorKind::usage, "--optimizer: expected a run or a checkpoint, found {}", model.weights->where());
  std::vector<ExportTensor> weights = hf_tensors(param_table(model.spec), *model.weights, dtype), rest;
  if (spec.optimizer) rest = optimizer_tensors(model, dtype);
  HfExport done{.dir = spec.output.empty() ? artifact_name(model, spec.dtype) : spec.output,
                .bytes = bytes_of(weights) + bytes_of(rest)};
  StagedDirectory stage(done.dir, spec.force, is_export_file);
  int64_t written = 0;
  const std::function<void(int64_t)> add = [&](int64_t bytes) {
    written += bytes;
    if (progress) progress(written, done.bytes);
  };
  count_bytes(weights, add);
  count_bytes(rest, add);
  SafetensorsOptions options{.max_shard_bytes = spec.max_shard_size, .memory_bytes = spec.memory};
  std::vector<WrittenFile> files = write_safetensors(stage.path(), weights, options);
  if (spec.optimizer) {
    options.stem = kOptimizerStem;
    for (WrittenFile& file : write_safetensors(stage.path(), rest, options)) files.push_back(std::move(file));
    write_file_atomic(stage.path() / kOptimizerState, optimizer_state(model));
  }
  write_configs(model, dtype, stage.path());
  write_json(stage.path() / kArtifactName, artifact_identity(model, spec.dtype, files));
  stage.publish();
  return done;
}

}  // namespace rw
