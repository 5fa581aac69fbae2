// Effects that published runs show, predicted for the trainers that showed them on the shipped clusters: each has the
// right sign and order and, where the measurement says so, about the right size.
#include <doctest/doctest.h>

#include <cstdlib>
#include <map>

#include "libcore/plan/price/predict.h"
#include "libcore/plan/published/published_memory.h"
#include "libcore/plan/published/published_rows.h"

using namespace rw;

namespace {

std::string table() { return std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/tests/golden/published/training.csv"; }

// A run of the table, to be changed and predicted.
PublishedRow run_at(int64_t line) {
  static const std::vector<PublishedRow> all = published_rows(table());
  for (const PublishedRow& r : all)
    if (r.line == line && r.excluded.empty()) return r;
  FAIL("no row to predict at line ", line);
  return all.front();
}

StepSeconds parts(const PublishedRow& run) {
  PredictQuery query{.model = run.model, .cluster = run.cluster};
  query.trainer = run.traits;
  return Predictor(query).step_seconds(run.layout, Effort::closed_form);
}
double seconds(const PublishedRow& run) { return parts(run).total(); }
double seconds(int64_t line) { return seconds(run_at(line)); }
// Tokens a second and device.
double rate(const PublishedRow& run) {
  return static_cast<double>(run.layout.global_batch * run.layout.seq_len) / seconds(run) /
         static_cast<double>(run.layout.ranks());
}
double rate(int64_t line) { return rate(run_at(line)); }

void set_devices(PublishedRow& run, int64_t devices) { run.cluster.nodes.front().count = (devices + 7) / 8; }

double reported(int64_t line) { return run_at(line).step_s; }

std::vector<int64_t> even(int64_t layers, int64_t stages) {
  return std::vector<int64_t>(static_cast<size_t>(stages), layers / stages);
}

}  // namespace

// Korthikanti et al. 2022, table 5: 1.42 -> 1.10 s, 18.13 -> 13.75, 49.05 -> 37.83, 94.42 -> 71.49.
TEST_CASE("effect: selective recomputation with sequence parallelism beats full recomputation by a quarter") {
  for (const int64_t full : {24, 28, 32, 36}) {
    CAPTURE(full);
    const double measured = reported(full) / reported(full + 1);
    CHECK(seconds(full) / seconds(full + 1) == doctest::Approx(measured).epsilon(0.08));
  }
}

// The paper's figure 7, per cent of what tensor parallelism alone keeps.
TEST_CASE("effect: activation memory by technique") {
  using Kept = ActivationTechnique::Kept;
  struct Model {
    double micro_batch, width, heads, sp, selective, both, full;
  };
  for (const Model& m : {Model{4, 6144, 64, 66.8, 49.4, 16.2, 7.6}, Model{1, 12288, 96, 62.0, 56.5, 18.5, 8.7},
                         Model{1, 20480, 128, 58.3, 62.0, 20.3, 9.4}, Model{1, 25600, 160, 58.3, 62.0, 20.3, 9.4}}) {
    CAPTURE(m.width);
    const LayerSize size{.seq = 2048, .micro_batch = m.micro_batch, .width = m.width, .heads = m.heads, .tp = 8};
    const double all = korthikanti_layer_bytes(size, {});
    const auto percent = [&](bool sp, Kept kept) {
      return 100 * korthikanti_layer_bytes(size, {.sp = sp, .kept = kept}) / all;
    };
    CHECK(percent(true, Kept::all) == doctest::Approx(m.sp).epsilon(0.01));
    CHECK(percent(false, Kept::selective) == doctest::Approx(m.selective).epsilon(0.01));
    CHECK(percent(true, Kept::selective) == doctest::Approx(m.both).epsilon(0.01));
    CHECK(percent(false, Kept::input) == doctest::Approx(m.full).epsilon(0.015));
  }
}

// Narayanan et al. 2021, table 2: 175B, batch 1536. 384, 768, 1536 GPUs: ZeRO-3 144, 88, 44 TFLOP/s; tensor and
// pipeline parallel 153, 149, 141.
TEST_CASE("effect: ZeRO-3 collapses when a device's batch shrinks, tensor and pipeline parallelism do not") {
  PublishedRow sharded = run_at(28), split = run_at(28);
  for (PublishedRow* run : {&sharded, &split}) run->layout.vpp = 1, run->layout.global_batch = 1536;
  sharded.traits.messages = "tensors";  // DeepSpeed of 2021 gathers parameter by parameter
  std::map<int64_t, std::pair<double, double>> rates;
  for (const int64_t devices : {384, 768, 1536}) {
    Layout& z = sharded.layout;
    z.tp = z.pp = 1, z.dp = devices, z.zero = 3, z.micro_batch = 1536 / devices;
    z.stage_layers = even(96, 1);
    Layout& s = split.layout;
    s.tp = 8, s.pp = 12, s.dp = devices / 96, s.micro_batch = 1;
    s.stage_layers = even(96, 12);
    set_devices(sharded, devices);
    set_devices(split, devices);
    rates[devices] = {rate(sharded), rate(split)};
  }
  CHECK(rates[384].first > 1.2 * rates[768].first);
  CHECK(rates[768].first > 1.5 * rates[1536].first);
  CHECK(rates[1536].second > 0.85 * rates[384].second);
  CHECK(rates[1536].second > 2 * rates[1536].first);
}

// torchtitan (arXiv 2410.06511), Llama-3.1 405B on 512 H100, tp 8, pp 8: 1F1B 100 tokens/s, interleaved 128.
TEST_CASE("effect: interleaving shortens the bubble and with it the step") {
  PublishedRow plain = run_at(257);
  set_devices(plain, 512);
  Layout& l = plain.layout;
  l.pp = 8, l.dp = 8, l.micro_batch = 1, l.global_batch = 64;
  l.recompute_layers = plain.model.layers;
  l.stage_layers = {15, 16, 16, 16, 16, 16, 16, 15};
  PublishedRow interleaved = plain;
  interleaved.layout.vpp = 2;
  interleaved.layout.stage_layers = {7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7};
  CHECK(parts(interleaved).bubble < 0.6 * parts(plain).bubble);
  CHECK(rate(interleaved) > 1.1 * rate(plain));
  CHECK(rate(interleaved) < 1.6 * rate(plain));
}

// torchtitan, 70B on 256 H100: 597 -> 652 tokens/s, 9 % more.
TEST_CASE("effect: asynchronous tensor parallelism gains several per cent") {
  CHECK(rate(236) > 1.03 * rate(235));
  CHECK(rate(236) < 1.2 * rate(235));
}

// nanotron, 3.57B: tp 2, 4, 8, 16, 32 = 364, 346, 280, 158, 93 TFLOP/s; nodes have 8 devices.
TEST_CASE("effect: tensor parallelism across nodes costs more than any step within one") {
  std::vector<double> rates;
  for (const int64_t line : {286, 287, 288, 289, 290}) rates.push_back(rate(line));
  std::vector<double> kept;
  for (size_t i = 1; i < rates.size(); ++i) kept.push_back(rates[i] / rates[i - 1]);
  for (const double k : kept) CHECK(k < 1);
  CHECK(kept[2] < 0.75);  // 8 -> 16; measured 0.57
  CHECK(kept[2] < kept[0]);
  CHECK(kept[2] < kept[1]);
  CHECK(kept[0] > 0.85);  // measured 0.95
}

// BLOOM 182B, pp 12: batch 512, 1024, 1536, 2048 = 113.5, 136.2, 146.6, 151.6 TFLOP/s.
TEST_CASE("effect: a larger global batch fills the pipeline's bubble") {
  const std::vector<int64_t> lines = {575, 576, 577, 567};
  for (size_t i = 1; i < lines.size(); ++i) {
    CHECK(rate(lines[i]) > rate(lines[i - 1]));
    CHECK(rate(lines[i]) / rate(lines[0]) ==
          doctest::Approx(reported(lines[0]) / reported(lines[i]) *
                          static_cast<double>(run_at(lines[i]).layout.global_batch) / 512)
              .epsilon(0.04));
  }
}

// BLOOM, width 13824: 64, 96 and 128 heads 133.9, 130.2, 99.8 TFLOP/s: heads of 216, 144 and 108. Width 14400 against
// 13824: 94.4 against 120.1.
TEST_CASE("effect: shapes that kernels do not like") {
  CHECK(seconds(568) < seconds(569));
  CHECK(seconds(570) > 1.25 * seconds(569));
  CHECK(seconds(570) / seconds(568) == doctest::Approx(reported(570) / reported(568)).epsilon(0.1));
  CHECK(rate(516) > 1.15 * rate(515));
}

// BLOOM 176B, micro-batch 2, pp 12: 153.7 against 128.9 TFLOP/s, 59 against 40 GB.
TEST_CASE("effect: tp 4 is faster than tp 8 and takes more memory") {
  PublishedRow narrow = run_at(557), wide = run_at(557);
  wide.layout.tp = 8, wide.layout.dp = 4;
  CHECK(seconds(narrow) < 0.95 * seconds(wide));
  std::map<int64_t, double> memory;
  for (const PublishedMemory& m : published_memory(table())) memory[m.line] = m.predicted;
  CHECK(memory.at(556) > 1.15 * memory.at(519));
}

// InternEvo 7B: on 1024 GPUs states cut over all of them 2271 tokens/s, within nodes 3625; on 8 GPUs 4062 and 4078.
TEST_CASE("effect: the scope of ZeRO's shards decides at scale, and not on one node") {
  CHECK(rate(453) > 1.3 * rate(445));
  CHECK(rate(446) == doctest::Approx(rate(438)).epsilon(0.01));
  // It grows with the devices.
  double last = 1;
  for (const auto& [global, node] : {std::pair{440, 448}, std::pair{442, 450}, std::pair{444, 452}}) {
    const double gain = rate(node) / rate(global);
    CHECK(gain > last * 0.99);
    last = gain;
  }
}

// NVIDIA, Nemotron 15B and 340B: 16 -> 2048 H100 2.81 -> 2.89 s, 128 -> 2048 4.61 -> 4.84 s.
TEST_CASE("effect: a step's time hardly grows with the devices at a fixed batch of each") {
  for (const auto& [few, many] : {std::pair{160, 167}, std::pair{176, 180}}) {
    CHECK(seconds(many) >= 0.99 * seconds(few));
    CHECK(seconds(many) < 1.12 * seconds(few));
  }
}

// nanotron, 8.86B, batch 256: on one node dp 2 x pp 4 is best, on 64 nodes dp 128 x tp 4 with ZeRO-0.
TEST_CASE("effect: the best layout flips with the number of nodes") {
  const PublishedRow one_pipeline = run_at(285);
  PublishedRow one_tensor = one_pipeline;
  one_tensor.layout.tp = 4, one_tensor.layout.pp = 1, one_tensor.layout.sp = true;
  one_tensor.layout.stage_layers = even(32, 1);
  CHECK(seconds(one_pipeline) < seconds(one_tensor));

  const PublishedRow many_tensor = run_at(262);
  PublishedRow many_pipeline = many_tensor;
  Layout& l = many_pipeline.layout;
  l.tp = 1, l.pp = 4, l.sp = false, l.micro_batch = 1, l.zero = 1;
  l.stage_layers = even(32, 4);
  CHECK(seconds(many_tensor) < seconds(many_pipeline));
}
