// The dckpt tool on a run: verify, convert, and their exit codes.
#include <doctest/doctest.h>

#include "libcore/formats/safetensors.h"
#include "tests/ckpt/dckpt_tool.h"
#include "tests/ckpt/saves.h"

using namespace rw;
using namespace dckpt_tool;
namespace fs = std::filesystem;

TEST_CASE("dckpt on a run") {
  const ScratchDir dir;
  const std::string run = (dir / "run").string();
  make_run(run);
  fs::create_directory(dir / "run/checkpoints/step-00000009.tmp");

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
  saves::flip(file, static_cast<int64_t>(fs::file_size(file) / 2));
  const Result damaged = dckpt("verify " + run);
  CHECK(damaged.code == 3);
  CHECK(has(damaged.out, "step-00000003: DAMAGED"));
  CHECK(has(damaged.out, "step-00000008: intact"));
  CHECK(has(damaged.out, "rank-00001.h5: "));
  // All damage is listed, of whatever kind.
  const fs::path cut = dir / "run/checkpoints/step-00000003/rank-00000.h5";
  fs::resize_file(cut, fs::file_size(cut) - 1);
  const Json verified = dckpt("verify --json " + run).json();
  CHECK(verified["intact"] == false);
  REQUIRE(verified["checkpoints"][0]["faults"].size() == 2);
  CHECK(has(verified["checkpoints"][0]["faults"][0].get<std::string>(), "it was cut"));
  fs::remove(cut);
  CHECK(has(dckpt("verify " + run).out, "found no such file"));
  fs::remove(dir / "run/checkpoints/step-00000003/manifest.json");
  CHECK(dckpt("verify " + (dir / "run/checkpoints/step-00000003").string()).code == 3);
  CHECK(dckpt("verify " + (dir / "nothing").string()).code == 2);
  CHECK(dckpt("show " + run + " --jsn").code == 2);
  CHECK(dckpt("").code == 2);
  CHECK(dckpt("--help").code == 0);
}
