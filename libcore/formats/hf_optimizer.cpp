#include "libcore/formats/hf_optimizer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/base/version.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/spec/param_table.h"
#include "libcore/tensor/read_check.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMaster = "master/";
constexpr const char* kMoments[] = {"adam.m/", "adam.v/"};
constexpr const char* kTexts[] = {"tokenizer_json", "tokenizer_config_json"};

// Weights and, beside them, what optimizer.safetensors holds.
class JoinedSource : public TensorSource {
 public:
  JoinedSource(const ModelSource& model, std::unique_ptr<TensorSource> optimizer)
      : weights_(*model.weights), optimizer_(std::move(optimizer)) {
    for (const Param& p : param_table(model.spec)) {
      const bool master = optimizer_ != nullptr && optimizer_->find(kMaster + p.name) != nullptr;
      add(p, "", master ? *optimizer_ : weights_, master ? kMaster : "");
      if (optimizer_ == nullptr) continue;
      for (const char* moment : kMoments) add(p, moment, *optimizer_, moment);
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }
  std::string where() const override { return weights_.where(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override {
    const Place& place = places_.at(check_read(*this, name, box, dst_type).name);
    place.source->read(place.name, box, dst_type, dst);
  }

 private:
  struct Place {
    const TensorSource* source;
    std::string name;
  };
  void add(const Param& p, const std::string& prefix, const TensorSource& source, const std::string& prefix_there) {
    const TensorInfo& there = require_tensor(source, prefix_there + p.name);
    if (there.shape != p.shape)
      fail(ErrorKind::input, "{}: tensor {}: expected shape {}, found {}", source.where(), there.name,
           shape_text(p.shape), shape_text(there.shape));
    tensors_.push_back({prefix + p.name, there.dtype, p.shape});
    places_[prefix + p.name] = {&source, there.name};
  }

  const TensorSource& weights_;
  std::unique_ptr<TensorSource> optimizer_;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, Place> places_;
};

// The identity of weights that come from elsewhere.
Json new_identity(const ModelSource& model, const fs::path& dir) {
  const fs::path file = dir / kArtifactName;
  const Json artifact = fs::exists(file) ? read_json(file) : Json::object();
  const std::string path = fs::absolute(dir).lexically_normal().string();
  // The same directory gives the same run, so that converting it again may replace what it gave.
  const std::string created = utc_timestamp(), id = hex64(hash64(path + "\n" + model.config_json));
  Json origin = {{"path", path}, {"tool_version", version()}, {"created", created}};
  for (const char* key : {"run_id", "step", "loss", "dataset_fingerprint", "hyper_parameter_hash"})
    if (artifact.is_object() && artifact.contains(key)) origin[key] = artifact[key];
  return {{"run_id", id.substr(0, 12)},
          {"tool_version", version()},
          {"created", created},
          {"model_identity", model_identity(model.spec)},
          {"model_config", Json::parse(model.config_json)},
          {"params", n_params(model.spec)},
          {"converted_from", origin}};
}

}  // namespace

std::vector<ExportTensor> optimizer_tensors(const ModelSource& model, DType weights) {
  std::vector<ExportTensor> list;
  const auto add = [&](const std::string& name, const Param& p, const std::string& from) {
    list.push_back({name, DType::f32, p.shape, [&source = *model.weights, from](const Box& rows, void* dst) {
                      source.read(from, rows, DType::f32, dst);
                    }});
  };
  for (const Param& p : param_table(model.spec)) {
    if (weights != DType::f32) add(kMaster + p.name, p, p.name);
    for (const char* moment : kMoments) {
      if (model.weights->find(moment + p.name) == nullptr)
        fail(ErrorKind::usage, "{}: --optimizer: expected {}{}, found weights alone", model.weights->where(), moment,
             p.name);
      add(moment + p.name, p, moment + p.name);
    }
  }
  return list;
}

std::string optimizer_state(const ModelSource& model) {
  Json identity = Json::parse(model.identity);
  for (const char* text : kTexts) identity.erase(text);
  return Json{{"identity", identity}, {"state", Json::parse(model.state)}}.dump(2) + "\n";
}

bool holds_optimizer(const fs::path& dir) {
  std::error_code error;
  return fs::exists(dir / kOptimizerState, error);
}

std::unique_ptr<TensorSource> open_optimizer(const fs::path& dir) {
  const fs::path single = dir / "optimizer.safetensors";
  return open_safetensors(fs::exists(single) ? single : dir / "optimizer.safetensors.index.json");
}

HfImport import_hf(const fs::path& dir, HfImportPart part) {
  if (part == HfImportPart::all && !holds_optimizer(dir))
    fail(ErrorKind::usage, "{}: --optimizer: expected {}, found none: it was exported without", dir.string(),
         kOptimizerState);
  HfImport import{.model = open_model_source(dir), .tensors = nullptr, .identity = "", .state = ""};
  const fs::path state_file = dir / kOptimizerState;
  std::unique_ptr<TensorSource> optimizer;
  Json identity, state;
  if (part == HfImportPart::all) {
    check_artifact(dir, ArtifactPart::optimizer);
    optimizer = open_optimizer(dir);
    const Json both = read_json(state_file);
    for (const char* key : {"identity", "state"}) {
      if (!both.is_object() || !both.contains(key) || !both[key].is_object())
        fail(ErrorKind::input, "{}: key '{}': expected an object, found none", state_file.string(), key);
    }
    identity = both["identity"], state = both["state"];
    import.step = json_int(state, "step", state_file.string());
    const std::string expected = json_string(identity, "model_identity", state_file.string(), "");
    if (expected != "" && expected != model_identity(import.model.spec))
      fail(ErrorKind::input, "{}: is of model {}, config.json is of {}", state_file.string(), expected,
           model_identity(import.model.spec));
  } else {
    identity = new_identity(import.model, dir);
    if (const auto step = identity["converted_from"].find("step");
        step != identity["converted_from"].end() && step->is_number_integer())
      import.step = step->get<int64_t>();
    state = {{"step", import.step}};
  }
  const std::string* texts[] = {&import.model.tokenizer_json, &import.model.tokenizer_config_json};
  for (size_t i = 0; i < 2; ++i)
    if (!texts[i]->empty()) identity[kTexts[i]] = *texts[i];
  import.tensors = std::make_unique<JoinedSource>(import.model, std::move(optimizer));
  import.identity = identity.dump();
  import.state = state.dump();
  return import;
}

}  // namespace rw
