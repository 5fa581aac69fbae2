// What dplan memory says: bytes by owner, whether they fit, and changes that do make them fit.
#include "libcore/plan/search/memory_report.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "kernels/plain_sizes.h"
#include "libcore/base/error.h"
#include "libcore/train/setup.h"

using namespace rw;

namespace {

std::string source() {
  const char* at = std::getenv("RANKWRIGHT_SOURCE");
  REQUIRE(at != nullptr);
  return at;
}

MemorySpec spec_of(const std::string& model) {
  MemorySpec spec;
  spec.train.model = source() + "/configs/models/" + model + ".json";
  spec.train.seq_len = 1024;
  spec.train.micro_batch = 4;
  return spec;
}

std::string message_of(const MemorySpec& spec) {
  try {
    memory_report(spec);
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// The most that a stage's first rank takes.
int64_t most_bytes(const MemorySpec& spec, const Layout& layout) {
  const ModelSpec model = load_model_spec(spec.train.model);
  int64_t most = 0;
  for (int64_t stage = 0; stage < layout.pp; ++stage)
    most = std::max(most, dry_run({.step = step_settings(spec.train, model, layout),
                                   .backend = {.ops = plain_sizes(), .stream = {.threads = 1}, .t = DType::bf16},
                                   .ranks_per_node = layout.ranks()},
                                  stage * layout.tp * layout.dp)
                              .total_bytes);
  return most;
}

}  // namespace

TEST_CASE("memory_report: the states of llama-2-7b are 18 bytes a parameter, less the embedding's copy") {
  MemorySpec spec = spec_of("llama-2-7b");
  const MemoryReport r = memory_report(spec);
  REQUIRE(r.runs.size() == 1);
  CHECK(r.fits());
  CHECK(r.remedies.empty());
  CHECK(r.params == 6738415616);  // Touvron et al. 2023: 6.7B
  double states = 0;
  for (const MemoryOwner o :
       {MemoryOwner::weights, MemoryOwner::packed_weights, MemoryOwner::gradients, MemoryOwner::optimizer})
    states += static_cast<double>(r.runs[0].bytes[static_cast<size_t>(o)]);
  CHECK(states == doctest::Approx(18.0 * 6738415616 - 2.0 * 32000 * 4096).epsilon(1e-3));
  const Json json = memory_report_json(r);
  CHECK(json["fits"] == true);
  CHECK(json["runs"].size() == 1);
  CHECK(json["ranks"] == 1);
  CHECK(json["backend"] == "accelerator");
  CHECK_FALSE(json.contains("limit_bytes"));
}

TEST_CASE("memory_report: every remedy fits, the next smaller change of its kind does not") {
  MemorySpec spec = spec_of("llama-2-7b");
  spec.train.tp = 2;
  spec.train.dp = "4";
  spec.train.global_batch = 64;
  spec.max_memory = int64_t{60} << 30;
  const MemoryReport r = memory_report(spec);
  REQUIRE_FALSE(r.fits());
  REQUIRE(r.remedies.size() >= 3);
  for (const MemoryRemedy& m : r.remedies) {
    CAPTURE(m.change);
    CHECK(most_bytes(spec, m.layout) <= spec.max_memory);
    CHECK(m.layout.global_batch == 64);
    Layout less = m.layout;
    if (m.layout.zero > 1) {
      less.zero -= 1;
      CHECK(most_bytes(spec, less) > spec.max_memory);
    }
    if (m.layout.recompute == Recompute::full) {
      less.recompute = Recompute::selective;
      CHECK(most_bytes(spec, less) > spec.max_memory);
    }
  }
  const Json json = memory_report_json(r);
  CHECK(json["fits"] == false);
  CHECK(json["would_fit"].size() == r.remedies.size());
  CHECK(json["missing_bytes"] == static_cast<double>(r.most().total_bytes) - static_cast<double>(spec.max_memory));
}

TEST_CASE("memory_report: more memory never takes a remedy away; enough needs none") {
  MemorySpec spec = spec_of("llama-3.2-1b");
  spec.train.dp = "2";
  spec.train.global_batch = 16;
  size_t before = 0;
  bool fitted = false;
  for (const int64_t gib : {1, 8, 14, 18, 24, 32, 64}) {
    spec.max_memory = gib << 30;
    const MemoryReport r = memory_report(spec);
    CHECK((!fitted || r.fits()));
    fitted = r.fits();
    if (!fitted) {
      CHECK(r.remedies.size() >= before);
      before = r.remedies.size();
    }
  }
  CHECK(fitted);
}

TEST_CASE("memory_report: a cluster gives the device, its ranks and the kind of buffers") {
  MemorySpec spec = spec_of("tiny-llama");
  spec.train.seq_len = 32;
  spec.cluster = source() + "/configs/clusters/cpu-2core.toml";
  const MemoryReport r = memory_report(spec);
  CHECK(r.layout.dp == 2);
  CHECK(r.device == "cpu-core");
  CHECK(r.backend.starts_with("cpu/"));
  CHECK(r.fits());
  spec.train.tp = 4;
  CHECK(has(message_of(spec), "has 2 devices, but the layout needs 4; give --nodes 2 or more"));
  spec.cluster = source() + "/configs/clusters/h100-sxm.toml";
  spec.train.tp = 2;
  spec.nodes = 2;
  CHECK(memory_report(spec).layout.ranks() == 16);
  CHECK(memory_report(spec).backend == "accelerator");
}

TEST_CASE("memory_report: configurations and mistakes") {
  MemorySpec spec = spec_of("tiny-llama");
  spec.train.seq_len = 32;
  read_memory_config(spec, "tp = 2\nlr = 0.1\n[plan]\nnodes = 3\n[predicted]\nstep-time-s = 1.0\n", "plan.toml");
  CHECK(spec.train.tp == 2);
  CHECK(spec.nodes == 3);
  CHECK_THROWS_AS(read_memory_config(spec, "tpp = 2\n", "plan.toml"), Error);
  spec.rank = "2";
  CHECK(has(message_of(spec), "--rank: expected all-stages or a rank from 0 to 1, found \"2\""));
  spec.rank = "1";
  CHECK(memory_report(spec).runs.at(0).rank == 1);
  spec.train.model = "";
  CHECK(has(message_of(spec), "--model is missing"));
}
