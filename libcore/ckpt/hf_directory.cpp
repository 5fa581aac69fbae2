#include "libcore/ckpt/hf_directory.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/elements.h"
#include "libcore/ckpt/hf_layout.h"
#include "libcore/spec/param_table.h"
#include "libcore/text/tokenizer.h"

namespace rw {

namespace fs = std::filesystem;

FieldList fields(HfExportSpec& spec) {
  return {
      {.name = "output", .value = &spec.output, .help = "directory to write (-o)"},
      {.name = "dtype", .value = &spec.dtype, .help = "element type of the weights", .choices = {"f32", "bf16", "f16"}},
      {.name = "max-shard-size",
       .value = &spec.max_shard_size,
       .help = "largest file, bytes",
       .min = 1,
       .is_size = true},
      {.name = "force", .value = &spec.force, .help = "write into a directory that holds files already"},
  };
}

namespace {

void prepare_directory(const HfExportSpec& spec) {
  std::error_code error;
  const fs::path dir = spec.output;
  if (!fs::exists(dir, error)) {
    fs::create_directories(dir, error);
    if (error) fail(ErrorKind::runtime, "{}: creating the directory failed: {}", spec.output, error.message());
  } else if (!fs::is_directory(dir, error)) {
    fail(ErrorKind::usage, "{}: expected a directory to write, found a file", spec.output);
  } else if (!spec.force && !fs::is_empty(dir, error)) {
    fail(ErrorKind::usage, "{}: expected an empty or new directory, found files in it: choose another, or --force",
         spec.output);
  }
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

void write_weights(const ModelSource& model, DType dtype, const HfExportSpec& spec,
                   const std::function<void(int64_t, int64_t)>& progress) {
  std::vector<ExportTensor> tensors = hf_tensors(param_table(model.spec), *model.weights, dtype);
  int64_t total = 0, done = 0;
  for (const ExportTensor& t : tensors) total += n_elements(t.shape) * dtype_bytes(t.dtype);
  for (ExportTensor& t : tensors) {
    t.read = [read = std::move(t.read), bytes = n_elements(t.shape) * dtype_bytes(t.dtype), total, &done,
              &progress](void* dst) {
      read(dst);
      done += bytes;
      if (progress) progress(done, total);
    };
  }
  write_safetensors(spec.output, tensors, spec.max_shard_size);
}

}  // namespace

void export_hf(const ModelSource& model, const HfExportSpec& spec,
               const std::function<void(int64_t, int64_t)>& progress) {
  DType dtype;
  if (!dtype_from_name(spec.dtype.c_str(), dtype))
    fail(ErrorKind::usage, "dtype: expected f32, bf16 or f16, found {}", spec.dtype);
  prepare_directory(spec);
  const fs::path dir = spec.output;
  // The weights first: when they fail, nothing is left that stands in the way of another try.
  write_weights(model, dtype, spec, progress);
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

}  // namespace rw
