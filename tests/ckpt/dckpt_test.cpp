// The dckpt tool on a run: show, verify, convert, and their exit codes.
#include <doctest/doctest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/safetensors.h"
#include "libcore/spec/param_table.h"
#include "libcore/text/tokenizer.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

struct Result {
  int code;
  std::string out, err;
};

Result dckpt(const std::string& args) {
  const ScratchDir dir;
  const std::string command = std::string(std::getenv("RANKWRIGHT_BUILD")) + "/tools/dckpt " + args + " >" +
                              (dir / "out").string() + " 2>" + (dir / "err").string();
  const int status = std::system(command.c_str());
  return {WEXITSTATUS(status), read_file(dir / "out"), read_file(dir / "err")};
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// A run of two checkpoints, each written by two ranks that hold half of every tensor's rows. Element i of a weight is
// i % 101 - 50: exact in bf16.
void make_run(const fs::path& run) {
  const fs::path model = fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/golden/models/llama";
  const std::vector<Param> params = param_table(load_model_spec(model));
  const Json identity = {{"run_id", "t-1"},
                         {"model_config", read_json(model / "config.json")},
                         {"tokenizer_json", byte_tokenizer()->json()}};
  for (const int64_t step : {3, 8}) {
    run_thread_ranks(2, [&](Comm& comm) {
      std::vector<std::vector<float>> storage;
      std::vector<TensorPiece> pieces;
      for (const Param& p : params) {
        for (const char* prefix : {"", "adam.m/", "adam.v/"}) {
          Box box = whole(p.shape);
          box.extent[0] = comm.rank() == 0 ? p.shape[0] / 2 : p.shape[0] - p.shape[0] / 2;
          box.offset[0] = comm.rank() == 0 ? 0 : p.shape[0] / 2;
          std::vector<float>& values = storage.emplace_back(static_cast<size_t>(box.size()));
          const int64_t first = box.offset[0] * (box.size() / std::max<int64_t>(box.extent[0], 1));
          for (size_t i = 0; i < values.size(); ++i)
            values[i] = static_cast<float>((first + static_cast<int64_t>(i)) % 101 - 50);
          pieces.push_back({prefix + p.name, DType::f32, p.shape, box, values.data()});
        }
      }
      save_checkpoint(run / "checkpoints", step, pieces, identity, Json{{"step", step}}, comm);
    });
  }
  fs::create_directory(run / "checkpoints/step-00000009.tmp");
  std::ofstream(run / "run.json") << R"({"run_id": "t-1"})";
}

}  // namespace

TEST_CASE("dckpt on a run") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run);

  const Result show = dckpt("show " + run + " --json");
  REQUIRE(show.code == 0);
  const Json shown = parse_json(show.out, "show");
  CHECK(shown["kind"] == "run");
  CHECK(shown["steps"] == Json{3, 8});
  CHECK(shown["step"] == 8);
  CHECK(shown["files"] == 2);
  CHECK(shown["bytes"]["optimizer"] == 2 * shown["bytes"]["weights"].get<int64_t>());
  CHECK(shown["bytes"]["weights"] == 4 * shown["model"]["params"].get<int64_t>());
  CHECK(shown["run"]["run_id"] == "t-1");
  CHECK(shown["ignored"].size() == 1);
  CHECK(show.out.size() < 60'000);  // without the tokenizer's text
  const Result text = dckpt("show " + run);
  CHECK(text.code == 0);
  CHECK(has(text.out, "blocks.0.attn.q.weight"));
  CHECK(has(text.out, "rank-00001.h5 at "));

  const Result intact = dckpt("verify " + run + " --json");
  CHECK(intact.code == 0);
  CHECK(parse_json(intact.out, "verify")["intact"] == true);
  CHECK(parse_json(intact.out, "verify")["unfinished"].size() == 1);

  const std::string hf = (dir / "hf").string();
  const Result convert = dckpt("convert " + run + " -o " + hf + " --dtype bf16 --max-shard-size 16K --json");
  REQUIRE(convert.code == 0);
  CHECK(parse_json(convert.out, "convert")["step"] == 8);
  CHECK(read_json(dir / "hf/config.json")["torch_dtype"] == "bfloat16");
  CHECK(read_file(dir / "hf/tokenizer.json") == byte_tokenizer()->json());
  CHECK(fs::exists(dir / "hf/model.safetensors.index.json"));
  const auto source = open_safetensors(hf);
  const TensorInfo* q = source->find("model.layers.1.self_attn.q_proj.weight");
  REQUIRE(q != nullptr);
  CHECK(q->dtype == DType::bf16);
  std::vector<float> values(static_cast<size_t>(n_elements(q->shape)));
  source->read(q->name, whole(q->shape), DType::f32, values.data());
  for (size_t i = 0; i < values.size(); ++i) REQUIRE(values[i] == static_cast<float>(static_cast<int>(i % 101) - 50));

  const Result again = dckpt("convert " + run + " -o " + hf);
  CHECK(again.code == 2);
  CHECK(has(again.err, "--force"));
  CHECK(dckpt("convert " + run + " -o " + hf + " --force").code == 0);
  CHECK(open_safetensors(hf)->find(q->name)->dtype == DType::f32);
  CHECK(dckpt("verify " + hf).code == 0);

  // One flipped byte in the middle of the older checkpoint's second file, then a lost manifest.
  const fs::path file = dir / "run/checkpoints/step-00000003/rank-00001.h5";
  std::fstream f(file, std::ios::in | std::ios::out | std::ios::binary);
  const auto at = static_cast<std::streamoff>(fs::file_size(file) / 2);
  f.seekg(at);
  const char was = static_cast<char>(f.get());
  f.seekp(at);
  f.put(static_cast<char>(was ^ 4));
  f.close();
  const Result damaged = dckpt("verify " + run);
  CHECK(damaged.code == 3);
  CHECK(has(damaged.out, "step-00000003: DAMAGED"));
  CHECK(has(damaged.out, "step-00000008: intact"));
  CHECK(has(damaged.out, "rank-00001.h5: "));
  fs::remove(dir / "run/checkpoints/step-00000003/manifest.json");
  CHECK(dckpt("verify " + (dir / "run/checkpoints/step-00000003").string()).code == 3);
  CHECK(dckpt("verify " + (dir / "nothing").string()).code == 2);
  CHECK(dckpt("show " + run + " --jsn").code == 2);
  CHECK(dckpt("").code == 2);
  CHECK(dckpt("--help").code == 0);
}
