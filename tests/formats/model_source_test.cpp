#include "libcore/formats/model_source.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/spec/param_table.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

fs::path golden_model() { return fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/models/gpt2"; }

std::string open_error(const fs::path& path) {
  try {
    open_model_source(path);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::input);
    return e.what();
  }
  return "";
}

// Saves `from`'s weights and moments of zero as a checkpoint of one rank.
void save_as_checkpoint(const ModelSource& from, const fs::path& dir, int64_t step, const Json& identity) {
  std::vector<std::vector<float>> storage;
  std::vector<TensorPiece> pieces;
  for (const TensorInfo& t : from.weights->tensors()) {
    storage.emplace_back(static_cast<size_t>(n_elements(t.shape)));
    from.weights->read(t.name, whole(t.shape), DType::f32, storage.back().data());
    pieces.push_back({t.name, DType::f32, t.shape, whole(t.shape), storage.back().data()});
    storage.emplace_back(static_cast<size_t>(n_elements(t.shape)), 0.25f);
    pieces.push_back({"adam.m/" + t.name, DType::f32, t.shape, whole(t.shape), storage.back().data()});
  }
  const auto self = make_self_comm();
  save_checkpoint(dir, step, pieces, identity, Json{{"step", step}}, *self);
}

}  // namespace

TEST_CASE("the same model from a Hugging Face directory, a checkpoint and a run") {
  set_log_level(LogLevel::error);
  const ScratchDir dir;
  const ModelSource hf = open_model_source(golden_model());
  CHECK(hf.spec.family == Family::gpt2);
  CHECK(hf.step == -1);
  CHECK(hf.unused.empty());

  const Json identity = {{"model_config", read_json(golden_model() / "config.json")}, {"tokenizer_json", "{\"t\": 1}"}};
  save_as_checkpoint(hf, dir / "run/checkpoints", 5, identity);
  save_as_checkpoint(hf, dir / "run/checkpoints", 12, identity);
  fs::create_directory(dir / "run/checkpoints/step-00000013.tmp");
  for (const auto& [path, step] : {std::pair{dir / "run", 12}, std::pair{dir / "run/checkpoints", 12},
                                   std::pair{dir / "run/checkpoints/step-00000005", 5}}) {
    const ModelSource model = open_model_source(path);
    CHECK(model.checkpoint.filename().string() == (step == 12 ? "step-00000012" : "step-00000005"));
    CHECK(parse_json(model.state, "state")["step"] == step);
    CHECK(model.spec == hf.spec);
    CHECK(model.step == step);
    CHECK(model.tokenizer_json == "{\"t\": 1}");
    for (const Param& p : param_table(hf.spec)) {
      std::vector<float> a(static_cast<size_t>(n_elements(p.shape))), b = a;
      hf.weights->read(p.name, whole(p.shape), DType::f32, a.data());
      model.weights->read(p.name, whole(p.shape), DType::f32, b.data());
      REQUIRE(a == b);
    }
    CHECK(model.weights->find("adam.m/final_norm.weight") != nullptr);
  }
  set_log_level(LogLevel::info);
}

TEST_CASE("places that hold no model say what was looked for") {
  set_log_level(LogLevel::error);
  const ScratchDir dir;
  CHECK(
      has(open_error(dir / "none"),
          "expected a run (checkpoints/), a checkpoints directory (step-N/), a checkpoint (manifest.json) or a Hugging "
          "Face directory (config.json), found nothing"));
  CHECK(has(open_error(dir.path()), "found a directory with none of these"));
  fs::create_directories(dir / "run/checkpoints/step-00000004.tmp");
  CHECK(has(open_error(dir / "run"), "expected a committed checkpoint, found none (1 passed over)"));

  const ModelSource hf = open_model_source(golden_model());
  save_as_checkpoint(hf, dir / "a", 1, Json{{"run_id", "x"}});
  CHECK(
      has(open_error(dir / "a/step-00000001"), "key 'model_config': expected the object of a config.json, found none"));
  Json config = read_json(golden_model() / "config.json");
  config["n_layer"] = 4;
  save_as_checkpoint(hf, dir / "b", 1, Json{{"model_config", config}});
  CHECK(has(open_error(dir / "b/step-00000001"), "expected tensor blocks.3."));
  config["n_layer"] = 3;
  config["n_positions"] = 20;
  save_as_checkpoint(hf, dir / "c", 1, Json{{"model_config", config}});
  CHECK(has(open_error(dir / "c/step-00000001"),
            "tensor embed.position.weight: expected shape (20, 24), found (19, 24)"));

  fs::create_directory(dir / "hf");
  fs::copy_file(golden_model() / "config.json", dir / "hf/config.json");
  CHECK(has(open_error(dir / "hf"), "expected model.safetensors"));
  set_log_level(LogLevel::info);
}
