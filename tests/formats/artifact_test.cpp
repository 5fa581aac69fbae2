// An export that is no longer what was exported is refused at every door, and what lies beside the weights is taken
// when it is asked for.
#include <doctest/doctest.h>

#include "libcore/base/error.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/model_source.h"
#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

namespace {

// What the door says; empty when it opens.
std::string refusal(const fs::path& dir) {
  try {
    open_model_source(dir);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::verdict);
    return e.what();
  }
  return "";
}

int64_t last_byte(const fs::path& file) { return static_cast<int64_t>(fs::file_size(file)) - 1; }

}  // namespace

TEST_CASE("a damaged export is refused by whoever opens it") {
  const ScratchDir dir;
  make_run(dir / "run", {8});
  const fs::path hf = dir / "hf", weights = hf / "model.safetensors", moments = hf / "optimizer.safetensors";
  REQUIRE(dckpt("convert --optimizer " + (dir / "run").string() + " -o " + hf.string()).code == 0);
  const std::string name = hf.string();
  CHECK(refusal(hf) == "");
  CHECK(dckpt("verify " + name).code == 0);

  saves::flip(weights, last_byte(weights));
  CHECK(has(refusal(hf), "model.safetensors: is not what was exported"));
  CHECK(dckpt("verify " + name).code == 3);
  CHECK(dckpt("convert " + name + " -o " + (dir / "x").string()).code == 3);
  // What differs is still told.
  const Result diff = dckpt("diff " + name + " " + (dir / "run").string());
  CHECK(diff.code == 3);
  CHECK(has(diff.err, "is not what was exported"));
  CHECK(has(diff.out, "1 different"));
  saves::flip(weights, last_byte(weights));
  CHECK(refusal(hf) == "");

  // The moments: of no interest to who takes the weights.
  saves::flip(moments, last_byte(moments));
  CHECK(refusal(hf) == "");
  CHECK(dckpt("verify " + name).code == 3);
  CHECK(dckpt("convert --optimizer " + name + " -o " + (dir / "x").string()).code == 3);
  CHECK_FALSE(fs::exists(dir / "x"));
  saves::flip(moments, last_byte(moments));

  fs::resize_file(weights, fs::file_size(weights) - 1);
  CHECK(has(refusal(hf), "is not what was exported"));
  fs::remove(weights);
  CHECK(has(refusal(hf), "model.safetensors: expected a file of digest "));
  std::ofstream(hf / kArtifactName) << "{";
  CHECK(has(refusal(hf), "damaged"));
}

TEST_CASE("a checkpoint is damage by its door whatever is wrong with it; a node's part is not") {
  const ScratchDir dir;
  make_run(dir / "run", {8});
  const fs::path step = dir / "run/checkpoints/step-00000008", local = dir / "node/t-1/step-00000008";
  fs::create_directories(local.parent_path());
  fs::copy(step, local);
  CHECK(refusal(local) == "");
  fs::remove(local / "rank-00001.h5");
  const Result part = dckpt("convert " + (dir / "node").string() + " -o " + (dir / "x").string());
  CHECK(part.code == 2);

  const fs::path file = step / "rank-00001.h5";
  saves::flip(file, last_byte(file));
  CHECK(has(refusal(step), "rank-00001.h5"));
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK(has(refusal(step), "it was cut"));
  fs::remove(file);
  CHECK(has(refusal(step), "rank-00001.h5"));
  saves::flip(step / "manifest.json", 100);
  CHECK(refusal(step) != "");
  fs::remove(step / "manifest.json");
  CHECK(has(refusal(step), "expected manifest.json, found none"));
  CHECK(dckpt("convert " + step.string() + " -o " + (dir / "x").string()).code == 3);
  CHECK(dckpt("reshard " + step.string() + " -o " + (dir / "x").string()).code == 3);
  CHECK(dckpt("cp " + step.string() + " " + (dir / "x").string()).code == 3);
}

TEST_CASE("the optimizer's state is taken from an export only when it is asked for") {
  const ScratchDir dir;
  make_run(dir / "run", {8});
  const std::string hf = (dir / "hf").string();
  REQUIRE(dckpt("convert --optimizer --dtype bf16 " + (dir / "run").string() + " -o " + hf).code == 0);
  const Result plain = dckpt("convert " + hf + " -o " + (dir / "plain").string());
  CHECK(plain.code == 0);
  CHECK(has(plain.err, "left out; --optimizer takes them"));
  const Checkpoint weights(dir / "plain/checkpoints/step-00000008");
  CHECK(weights.find("adam.m/final_norm.weight") == nullptr);
  CHECK(weights.identity()["run_id"] != "t-1");
  CHECK(weights.state() == Json{{"step", 8}});
  const Result all = dckpt("convert --optimizer " + hf + " -o " + (dir / "all").string());
  CHECK(all.code == 0);
  CHECK_FALSE(has(all.err, "left out"));
  const Checkpoint whole(dir / "all/checkpoints/step-00000008");
  CHECK(whole.find("adam.m/final_norm.weight") != nullptr);
  CHECK(whole.identity()["run_id"] == "t-1");
}
