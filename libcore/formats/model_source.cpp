#include "libcore/formats/model_source.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/intact.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/hf_layout.h"
#include "libcore/formats/safetensors.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// A directory that is meant as a checkpoint and cannot be opened as one is damaged.
std::unique_ptr<Checkpoint> checkpoint_at_door(const fs::path& dir) {
  try {
    return intact_checkpoint(dir);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    if (const ListedStep listed = list_step(dir); listed.state == StepState::part)
      fail(ErrorKind::input, "{}; expected all of them: the others are on other nodes", listed.reason);
    fail(ErrorKind::verdict, "damaged: {}", e.what());
  }
}

ModelSource open_checkpoint(const fs::path& dir) {
  std::unique_ptr<Checkpoint> checkpoint = checkpoint_at_door(dir);
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
  return fs::exists(file, error) ? read_regular_file(file) : "";
}

}  // namespace

ModelSource open_huggingface(const fs::path& dir) {
  ModelSource model;
  model.config_json = read_regular_file(dir / "config.json");
  model.spec =
      parse_model_spec(parse_json(model.config_json, (dir / "config.json").string()), (dir / "config.json").string());
  auto source = std::make_unique<HfSource>(open_safetensors(dir), param_table(model.spec));
  model.unused = source->unused();
  model.weights = std::move(source);
  model.tokenizer_json = read_if_there(dir / "tokenizer.json");
  model.tokenizer_config_json = read_if_there(dir / "tokenizer_config.json");
  for (const std::string& name : model.unused) log_warning("{}: tensor {} is not used", model.weights->where(), name);
  return model;
}

ModelSource open_model_source(const fs::path& path) {
  if (path_kind(path) != PathKind::huggingface) return open_checkpoint(checkpoint_of(path));
  check_artifact(path, ArtifactPart::weights);
  return open_huggingface(path);
}

}  // namespace rw
