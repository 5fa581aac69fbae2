#include "libcore/ckpt/model_source.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/hf_layout.h"
#include "libcore/ckpt/intact.h"
#include "libcore/ckpt/read_check.h"
#include "libcore/ckpt/safetensors.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/spec/param_table.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

ModelSource open_checkpoint(const fs::path& dir) {
  std::unique_ptr<Checkpoint> checkpoint = intact_checkpoint(dir);
  const std::string where = (dir / kManifestName).string() + ": identity";
  const Json& identity = checkpoint->identity();
  const auto config = identity.find("model_config");
  if (config == identity.end() || !config->is_object()) {
    fail(ErrorKind::input, "{}: key 'model_config': expected the object of a config.json, found {}", where,
         config == identity.end() ? "none" : config->type_name());
  }
  ModelSource model;
  model.checkpoint = dir;
  model.identity = identity.dump();
  model.state = checkpoint->state().dump();
  model.spec = parse_model_spec(*config, where + ": model_config");
  model.config_json = config->dump(2);
  model.tokenizer_json = json_string(identity, "tokenizer_json", where, "");
  model.tokenizer_config_json = json_string(identity, "tokenizer_config_json", where, "");
  model.step = checkpoint->step();
  for (const Param& p : param_table(model.spec)) {
    const TensorInfo& info = require_tensor(*checkpoint, p.name);
    if (info.shape != p.shape) {
      fail(ErrorKind::input, "{}: tensor {}: expected shape {}, found {}", checkpoint->where(), p.name,
           shape_text(p.shape), shape_text(info.shape));
    }
  }
  model.weights = std::move(checkpoint);
  return model;
}

std::string read_if_there(const fs::path& file) {
  std::error_code error;
  return fs::exists(file, error) ? read_file(file) : "";
}

ModelSource open_huggingface(const fs::path& dir) {
  ModelSource model;
  model.config_json = read_file(dir / "config.json");
  model.spec =
      parse_model_spec(parse_json(model.config_json, (dir / "config.json").string()), (dir / "config.json").string());
  auto source = std::make_unique<HfSource>(open_safetensors(dir), param_table(model.spec));
  model.unused = source->unused();
  model.weights = std::move(source);
  model.tokenizer_json = read_if_there(dir / "tokenizer.json");
  model.tokenizer_config_json = read_if_there(dir / "tokenizer_config.json");
  return model;
}

}  // namespace

ModelPlace model_place(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path / kManifestName, error)) return ModelPlace::checkpoint;
  if (fs::is_directory(path / "checkpoints", error)) return ModelPlace::run;
  if (fs::exists(path / "config.json", error)) return ModelPlace::huggingface;
  const char* found = fs::is_directory(path, error) ? "a directory with none of these"
                      : fs::exists(path, error)     ? "a file"
                                                    : "nothing";
  fail(ErrorKind::input,
       "{}: expected a run (checkpoints/), a checkpoint (manifest.json) or a Hugging Face directory (config.json), "
       "found {}",
       path.string(), found);
}

fs::path newest_checkpoint(const fs::path& run) {
  std::vector<std::string> ignored;
  const std::vector<CheckpointEntry> list = list_checkpoints(run / "checkpoints", &ignored);
  for (const std::string& line : ignored) log_warning("passed over: {}", line);
  if (list.empty()) {
    fail(ErrorKind::input, "{}: expected a committed checkpoint, found none ({} passed over)",
         (run / "checkpoints").string(), ignored.size());
  }
  return list.back().dir;
}

ModelSource open_model_source(const fs::path& path) {
  switch (model_place(path)) {
    case ModelPlace::run: return open_checkpoint(newest_checkpoint(path));
    case ModelPlace::checkpoint: return open_checkpoint(path);
    case ModelPlace::huggingface: break;
  }
  ModelSource model = open_huggingface(path);
  for (const std::string& name : model.unused) log_warning("{}: tensor {} is not used", model.weights->where(), name);
  return model;
}

}  // namespace rw
