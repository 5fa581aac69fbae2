// dckpt convert, both ways: what transformers wrote comes back bit for bit, a training state survives an export, and
// an export's bytes depend on the values alone.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "libcore/base/hash.h"
#include "libcore/formats/safetensors.h"
#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

namespace {

fs::path golden(const std::string& name) {
  return fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/models" / name;
}

std::vector<float> values_of(const TensorSource& source, const std::string& name) {
  const TensorInfo* info = source.find(name);
  REQUIRE(info != nullptr);
  std::vector<float> values(static_cast<size_t>(n_elements(info->shape)));
  source.read(name, whole(info->shape), DType::f32, values.data());
  return values;
}

std::string in(const ScratchDir& dir, const std::string& name) { return quoted((dir / name).string()); }

// The files of an export but for the one that says where it comes from.
std::vector<std::pair<std::string, std::string>> files_of(const fs::path& dir) {
  auto all = saves::tree(dir);
  std::erase_if(all, [](const auto& file) { return file.first == "rankwright.json"; });
  return all;
}

}  // namespace

TEST_CASE("a model that transformers wrote becomes a checkpoint and comes back bit for bit") {
  for (const std::string name : {"gpt2", "llama", "llama_bias", "qwen2"}) {
    CAPTURE(name);
    const ScratchDir dir;
    const Result made =
        dckpt("convert " + quoted(golden(name).string()) + " -o " + in(dir, "run") + " --memory 128K --json");
    REQUIRE(made.code == 0);
    CHECK(made.json()["kind"] == "rankwright");
    CHECK(dckpt("verify " + in(dir, "run")).code == 0);
    const Checkpoint checkpoint(dir / "run/checkpoints/step-00000000");
    CHECK(checkpoint.tensors().size() == param_table(load_model_spec(golden(name))).size());
    for (const TensorInfo& t : checkpoint.tensors()) CHECK(t.dtype == DType::f32);

    REQUIRE(dckpt("convert " + in(dir, "run") + " -o " + in(dir, "hf")).code == 0);
    const auto original = open_safetensors(golden(name) / "model.safetensors"), back = open_safetensors(dir / "hf");
    CHECK(back->tensors().size() == original->tensors().size());
    for (const TensorInfo& t : back->tensors()) {
      const std::string first = original->find(t.name) != nullptr ? t.name : "transformer." + t.name;
      const std::vector<float> a = values_of(*original, first), b = values_of(*back, t.name);
      CHECK(std::set<float>(a.begin(), a.end()).size() > 1);
      CHECK(a == b);
    }
    // In bf16 the checkpoint holds what a bf16 export holds.
    REQUIRE(dckpt("convert " + in(dir, "hf") + " -o " + in(dir, "half") + " --dtype bf16").code == 0);
    REQUIRE(dckpt("convert " + in(dir, "hf") + " --to huggingface -o " + in(dir, "hf16") + " --dtype bf16").code == 0);
    REQUIRE(dckpt("convert " + in(dir, "half") + " -o " + in(dir, "half16") + " --dtype bf16").code == 0);
    CHECK(Checkpoint(dir / "half/checkpoints/step-00000000").tensors()[0].dtype == DType::bf16);
    CHECK(read_file(dir / "hf16/model.safetensors") == read_file(dir / "half16/model.safetensors"));
  }
}

TEST_CASE("a training state survives an export in any dtype") {
  const ScratchDir dir;
  make_run(dir / "run");
  for (const std::string flags : {"--dtype f32", "--dtype bf16", "--dtype f16 --max-shard-size 20K --memory 1K"}) {
    CAPTURE(flags);
    REQUIRE(dckpt("convert " + in(dir, "run") + " --optimizer --force -o " + in(dir, "hf") + " " + flags).code == 0);
    REQUIRE(dckpt("convert " + in(dir, "hf") + " --optimizer -o " + in(dir, "back")).code == 0);
    const Checkpoint a(dir / "run/checkpoints/step-00000008"), b(dir / "back/checkpoints/step-00000008");
    CHECK(b.verify().empty());
    REQUIRE(a.tensors().size() == b.tensors().size());
    for (const TensorInfo& t : a.tensors()) {
      CHECK(b.find(t.name)->dtype == DType::f32);
      CHECK(values_of(a, t.name) == values_of(b, t.name));
    }
    CHECK(a.state() == b.state());
    for (const auto& [key, value] : a.identity().items()) CHECK(b.identity().at(key) == value);
    CHECK(read_json(dir / "back/run.json")["run_id"] == "t-1");
    fs::remove_all(dir / "back");
  }
  // Asked for where there is none.
  REQUIRE(dckpt("convert " + in(dir, "run") + " --force -o " + in(dir, "hf")).code == 0);
  CHECK_FALSE(fs::exists(dir / "hf/optimizer.safetensors"));
  Result none = dckpt("convert " + in(dir, "hf") + " --optimizer -o " + in(dir, "back"));
  CHECK(none.code == 2);
  CHECK(has(none.err, "--optimizer: expected optimizer.json, found none"));
  REQUIRE(dckpt("convert " + in(dir, "hf") + " -o " + in(dir, "back")).code == 0);
  none = dckpt("convert " + in(dir, "back") + " --optimizer -o " + in(dir, "hf2"));
  CHECK(none.code == 2);
  CHECK(has(none.err, "found weights alone"));
  CHECK_FALSE(fs::exists(dir / "hf2"));
}

TEST_CASE("an export's bytes are the same from any layout and in any memory") {
  const ScratchDir dir;
  make_run(dir / "run");
  REQUIRE(dckpt("convert " + in(dir, "run") + " --optimizer -o " + in(dir, "hf")).code == 0);
  const auto expected = files_of(dir / "hf");
  CHECK(expected.size() >= 7);
  int n = 0;
  for (const std::string layout : {"--pp 3 --dp 2 --zero 3", "--dp 5 --zero 2", "--pp 2 --stage-layers 2,1", ""}) {
    CAPTURE(layout);
    const std::string name = "r" + std::to_string(n++);
    REQUIRE(dckpt("reshard " + in(dir, "run") + " " + layout + " -o " + in(dir, name)).code == 0);
    REQUIRE(dckpt("convert " + in(dir, name) + " --optimizer --memory 300 -o " + in(dir, name + "-hf")).code == 0);
    const auto found = files_of(dir / (name + "-hf"));
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      CAPTURE(found[i].first);
      CHECK(found[i].first == expected[i].first);
      if (found[i].first != "optimizer.json") CHECK(found[i].second == expected[i].second);
    }
  }
}

TEST_CASE("an export says what it is, and is named after it") {
  const ScratchDir dir;
  make_run(dir / "run");
  const Result made =
      dckpt("convert " + in(dir, "run") + " --dtype bf16 --max-shard-size 16K --json -o " + in(dir, "llama-x"));
  REQUIRE(made.code == 0);
  const Json artifact = read_json(dir / "llama-x/rankwright.json");
  CHECK(artifact["run_id"] == "t-1");
  CHECK(artifact["step"] == 8);
  CHECK(artifact["loss"] == 4.125);
  CHECK(artifact["dtype"] == "bf16");
  CHECK(artifact["layout"]["dp"] == 2);
  CHECK(artifact["files"].size() > 2);
  for (const Json& file : artifact["files"]) {
    const std::string bytes = read_file(dir / "llama-x" / file["name"].get<std::string>());
    CHECK(file["bytes"] == bytes.size());
    CHECK(file["digest"] == hex64(hash64(bytes)));
  }
  // No name given: in the working directory, by model, run, step and dtype.
  const std::string command = "cd " + quoted(dir.path().string()) + " && " +
                              quoted(std::string(std::getenv("RANKWRIGHT_BUILD")) + "/tools/dckpt") +
                              " convert run --dtype f16 >out 2>err";
  REQUIRE(std::system(command.c_str()) == 0);
  const int64_t thousands = (made.json()["params"].get<int64_t>() + 500) / 1000;
  CHECK(fs::exists(dir / ("llama-" + std::to_string(thousands) + "k-t-1-step8-f16/model.safetensors")));

  // A file that was changed since.
  const std::string name = artifact["files"][1]["name"].get<std::string>();
  CHECK(has(name, "model-00002-of-"));
  saves::flip(dir / "llama-x" / name, 9000);
  const Result changed = dckpt("convert " + in(dir, "llama-x") + " -o " + in(dir, "again"));
  CHECK(changed.code == 3);
  CHECK(has(changed.err, name + ": is not what was exported"));
  CHECK_FALSE(fs::exists(dir / "again"));
}

TEST_CASE("nothing is overwritten, nothing of others is lost, nothing half is left") {
  const ScratchDir dir;
  make_run(dir / "run");
  REQUIRE(dckpt("convert " + in(dir, "run") + " -o " + in(dir, "hf")).code == 0);
  const auto before = saves::tree(dir / "hf");
  Result again = dckpt("convert " + in(dir, "run") + " -o " + in(dir, "hf"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "expected an empty or new directory"));
  std::ofstream(dir / "hf/notes.txt") << "mine";
  again = dckpt("convert " + in(dir, "run") + " --force -o " + in(dir, "hf"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "notes.txt in it is not of an export"));
  fs::remove(dir / "hf/notes.txt");
  CHECK(saves::tree(dir / "hf") == before);

  // A value that f16 cannot hold: the old export stays.
  const std::string big = in(dir, "big");
  REQUIRE(dckpt("convert " + in(dir, "run") + " -o " + big).code == 0);
  const std::string weights = read_file(dir / "big/model.safetensors");
  {
    std::fstream f(dir / "big/model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
    const float value = 1e6f;
    f.seekp(static_cast<std::streamoff>(weights.size() - 4));
    f.write(reinterpret_cast<const char*>(&value), 4);
  }
  fs::remove(dir / "big/rankwright.json");  // changed on purpose
  again = dckpt("convert " + big + " --to huggingface --dtype f16 --force -o " + in(dir, "hf"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "expected values within f16's 65504, found 1000000"));
  CHECK(saves::tree(dir / "hf") == before);
  CHECK_FALSE(fs::exists(dir / "hf.unfinished"));

  again = dckpt("convert " + in(dir, "hf") + " -o " + in(dir, "run"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "expected an empty or new directory"));
  again = dckpt("convert " + in(dir, "hf") + " --force -o " + in(dir, "run"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "holds run t-1"));
  // The same directory converted once more takes the place of its first conversion.
  REQUIRE(dckpt("convert " + in(dir, "hf") + " -o " + in(dir, "back")).code == 0);
  CHECK(dckpt("convert " + in(dir, "hf") + " -o " + in(dir, "back")).code == 2);
  CHECK(dckpt("convert " + in(dir, "hf") + " --force -o " + in(dir, "back")).code == 0);
  CHECK(dckpt("verify " + in(dir, "back")).code == 0);
  again = dckpt("convert " + in(dir, "run") + " --to rankwright -o " + in(dir, "x"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "`dckpt reshard`"));
  again = dckpt("convert " + in(dir, "hf") + " --memory 16 -o " + in(dir, "x"));
  CHECK(again.code == 2);
  CHECK(has(again.err, "--memory 16 B is too small"));
  CHECK_FALSE(fs::exists(dir / "x"));
}
