// dbench train without training: what is asked, the rungs of a ladder, the arithmetic of a record, the reading of an
// MFU, the law of a sweep.
#include "libcore/bench/train/train_bench.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/bench/train/ladder.h"
#include "libcore/bench/train/mfu_reading.h"
#include "libcore/bench/train/scaling.h"
#include "libcore/bench/train/synthetic_data.h"
#include "libcore/bench/train/train_record.h"
#include "libcore/data/token_file.h"

using namespace rw;

namespace {

ModelSpec small_model(int64_t layers = 4, int64_t heads = 4) {
  return {.family = Family::llama,
          .vocab_size = 101,
          .width = 8 * heads,
          .layers = layers,
          .heads = heads,
          .kv_heads = heads,
          .head_dim = 8,
          .ffn = 48,
          .max_position = 64};
}

TrainSpec small_spec() {
  TrainSpec spec;
  spec.model = "small";
  spec.seq_len = 10;
  spec.micro_batch = 3;
  return spec;
}

std::string refusal(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "accepted";
}

StepRecord step_of(int64_t step, double seconds) {
  StepRecord r;
  r.step = step;
  r.step_s = seconds;
  r.mfu_full = 0.4 / seconds;
  r.mfu_causal = 0.3 / seconds;
  r.mfu_hardware = 0.35 / seconds;
  r.seconds[static_cast<size_t>(TimeCategory::compute)] = 0.75 * seconds;
  r.seconds[static_cast<size_t>(TimeCategory::communication)] = 0.25 * seconds;
  r.exposed_s = 0.25 * seconds;
  r.calls = {{"replica.all_reduce", 4}};
  r.bytes = {{"replica.all_reduce", 1000}};
  r.memory_bytes = {{"weights", 77}, {"planned", 99}, {"outside_arena", 12345}};
  return r;
}

TrainSeries series_of(const std::vector<std::vector<double>>& seconds) {
  TrainSeries s;
  s.what.name = "dp 2";
  s.what.spec = small_spec();
  s.what.ranks = 2;
  s.model = small_model();
  s.layout = settle_layout(s.what.spec, s.model, 2);
  for (const auto& repeat : seconds) {
    s.repeats.emplace_back();
    for (const double v : repeat) s.repeats.back().push_back(step_of(static_cast<int64_t>(s.repeats.back().size()), v));
  }
  s.peak_flops_per_rank = 1e9;
  s.backend = "cpu/test";
  s.is_first = true;
  return s;
}

std::vector<double> samples(const BenchRecord& r, const std::string& name) {
  const BenchMetric* m = find_metric(r, name);
  CAPTURE(name);
  REQUIRE(m != nullptr);
  return m->samples;
}

}  // namespace

TEST_CASE("a record: medians of repeats, speed at the median step, counts once") {
  TrainSeries s = series_of({{1.0, 2.0, 6.0}, {3.0, 3.0, 3.0}});
  // A save's own call, in one step, is no step's.
  s.repeats[0][1].calls["world.all_reduce"] = 9;
  s.repeats[0][1].calls["replica.all_reduce"] = 5;
  TrainBenchSpec spec;
  spec.train = small_spec();
  const BenchRecord r = train_record(s, expected_training(s, nullptr, 0), spec);
  CHECK(r.bench == "train");
  CHECK(r.name == "small: tp 1 x pp 1 x dp 2, bf16, 6 x 10 tokens");
  CHECK(r.repeats == 2);
  CHECK(samples(r, "step_s") == std::vector<double>{2, 3});
  CHECK(!find_metric(r, "step_s")->predicted);
  // 6 samples of 10 tokens in median steps of 2 and 3 s.
  CHECK(samples(r, "tokens_per_s") == std::vector<double>{30, 20});
  CHECK(find_metric(r, "tokens_per_s")->better == Better::higher);
  CHECK(samples(r, "step_p90_s")[0] == doctest::Approx(5.2));  // numpy.quantile([1, 2, 6], 0.9)
  CHECK(samples(r, "mfu.full")[0] == doctest::Approx(0.2));
  CHECK(samples(r, "mfu.hardware")[0] == doctest::Approx(0.175));
  CHECK(samples(r, "compute_s") == std::vector<double>{1.5, 2.25});
  CHECK(samples(r, "communication_exposed_s") == std::vector<double>{0.5, 0.75});
  CHECK(samples(r, "calls.replica.all_reduce") == std::vector<double>{4});
  CHECK(find_metric(r, "calls.replica.all_reduce")->kind == MetricKind::count);
  CHECK(find_metric(r, "calls.world.all_reduce") == nullptr);
  CHECK(samples(r, "memory.weights.bytes") == std::vector<double>{77});
  CHECK(find_metric(r, "memory.planned.bytes")->kind == MetricKind::count);
  CHECK(find_metric(r, "memory.outside_arena.bytes")->kind == MetricKind::fact);
  CHECK(samples(r, "kernel_calls")[0] > 10);
  const Json details = Json::parse(r.details);
  CHECK(details["mfu_reading"].get<std::string>().find("compute takes 75 % of the step") != std::string::npos);
  CHECK(train_table(r).find("tokens_per_s") != std::string::npos);
  // A prediction's MFU is of the peak that the measured one is of, and says when its host was measured in others'
  // company.
  TrainExpectation expected = expected_training(s, nullptr, 0);
  expected.prediction = Prediction{};
  expected.prediction->step_s = 4;
  expected.prediction->tflops_per_device.full = 0.25e-3;
  expected.prediction->mfu.full = 0.9;
  CHECK(find_metric(train_record(s, expected, spec), "mfu.full")->predicted.value() == doctest::Approx(0.25));
  CHECK(train_table(train_record(s, expected, spec)).find("NOT QUIET") == std::string::npos);
  expected.was_quiet = false;
  CHECK(train_table(train_record(s, expected, spec)).find("NOT QUIET: this host") != std::string::npos);
  CHECK(Json::parse(train_record(s, expected, spec).details)["prediction"]["quiet"] == false);
  s.is_first = false;  // what the process took before is not this training's
  CHECK(find_metric(train_record(s, expected_training(s, nullptr, 0), spec), "memory.outside_arena.bytes") == nullptr);
  // As any record it can be read back.
  CHECK(parse_record(record_json(r), "r").metrics.size() == r.metrics.size());
}

TEST_CASE("the reading of an MFU") {
  MfuFacts f;
  f.is_gpu = true;
  f.params = 7e9;
  f.mfu = 0.5;
  f.compute = 0.8;
  f.communication = 0.2;
  f.roofline = 0.6;
  CHECK(mfu_reading(f).find("MFU 50.0 %: good") == 0);
  f.mfu = 0.4;
  CHECK(mfu_reading(f).find("fair") != std::string::npos);
  f.mfu = 0.29;
  CHECK(mfu_reading(f).find("something is wrong") != std::string::npos);
  CHECK(mfu_reading(f).find("compute takes 80 % of the step, at 60 % of what its ops' roofline allows") !=
        std::string::npos);
  f.params = 1e8;
  CHECK(mfu_reading(f).find("a model of this size is not held to that") != std::string::npos);
  f.is_gpu = false;
  f.communication = 0.9;
  f.compute = 0.1;
  CHECK(mfu_reading(f).find("a CPU is not held to that. What limits here: communication takes 90 % of the step") !=
        std::string::npos);
  f.roofline = 3;
  CHECK(mfu_reading(f).find("caches") != std::string::npos);
}

TEST_CASE("rungs: what fits is added up, what needs other ranks stands alone, the rest says why") {
  const auto names = [](const std::vector<Rung>& rungs, bool skipped) {
    std::string text;
    for (const Rung& r : rungs)
      if (r.skipped.empty() != skipped) text += (text.empty() ? "" : ", ") + r.name;
    return text;
  };
  const std::vector<Rung> four = ladder_rungs(small_spec(), small_model(), 4);
  CHECK(names(four, false) ==
        "dp 4, + zero 1, + tp 2, + sp, + pp 2, + schedule zb-h1, + recompute selective, + recompute full");
  CHECK(names(four, true).empty());
  for (const Rung& r : four) {
    CAPTURE(r.name);
    const Layout layout = settle_layout(r.spec, small_model(), 4);
    CHECK(layout.global_batch == 12);  // all do the base's work
    CHECK(layout.ranks() == 4);
  }
  CHECK(settle_layout(four[2].spec, small_model(), 4).text() == "tp 2 x pp 1 x dp 2, zero 1");
  CHECK(settle_layout(four[4].spec, small_model(), 4).zero == 0);  // one replica is left

  const std::vector<Rung> two = ladder_rungs(small_spec(), small_model(), 2);
  CHECK(names(two, false) ==
        "dp 2, + zero 1, + tp 2, + sp, pp 2, + schedule zb-h1, + recompute selective, + recompute full");
  const std::vector<Rung> three = ladder_rungs(small_spec(), small_model(), 3);
  CHECK(names(three, false) == "dp 3, + zero 1, + recompute selective, + recompute full");
  for (const Rung& r : three)
    if (r.name == "+ tp 2") CHECK(r.skipped.find("does not divide the number of ranks, 3") != std::string::npos);
  const std::vector<Rung> one = ladder_rungs(small_spec(), small_model(), 1);
  CHECK(names(one, false) == "dp 1, + recompute selective, + recompute full");
  for (const Rung& r : one)
    if (r.name == "+ zero 1") CHECK(r.skipped.find("one replica") != std::string::npos);
  CHECK(names(ladder_rungs(small_spec(), small_model(1, 3), 2), true) == "+ tp 2, + sp, + pp 2, + schedule zb-h1");
}

TEST_CASE("a ladder's gains are ratios of medians") {
  TrainBenchSpec spec;
  spec.train = small_spec();
  std::vector<Rung> rungs(3);
  rungs[0].name = "dp 2";
  rungs[1].name = "+ sp";
  rungs[1].skipped = "no";
  rungs[2].name = "+ zero 1";
  std::vector<BenchRecord> records;
  for (const double seconds : {2.0, 1.6}) {
    const TrainSeries s = series_of({{seconds, seconds, 50 * seconds * seconds}});  // one slow step changes no median
    records.push_back(train_record(s, expected_training(s, nullptr, 0), spec));
  }
  const std::string table = compare_rungs(rungs, records);
  CHECK(Json::parse(records[1].details)["ladder"]["tokens_per_s_over_base"].get<double>() == doctest::Approx(1.25));
  CHECK(Json::parse(records[1].details)["ladder"]["memory_over_base"].get<double>() == doctest::Approx(1));
  CHECK(table.find("skipped: no") != std::string::npos);
  CHECK(table.find("+25.0 %") != std::string::npos);
  CHECK(table.find("NOT QUIET") == std::string::npos);
  records[1].quiet = false;
  CHECK(compare_rungs(rungs, records).find("NOT QUIET") != std::string::npos);
}

TEST_CASE("a sweep: batches, and the law through exact points") {
  TrainBenchSpec spec;
  spec.train = small_spec();
  spec.sweep_ranks = "4,1,2,2";
  const std::vector<int> ranks = sweep_ranks(spec, 4);
  CHECK(ranks == std::vector<int>{1, 2, 4});
  const auto batches = [&] {
    std::vector<int64_t> found;
    for (const TrainCase& c : scaling_cases(spec, small_model(), ranks)) found.push_back(c.spec.global_batch);
    return found;
  };
  CHECK(batches() == std::vector<int64_t>{12, 12, 12});
  spec.scaling = "weak";
  CHECK(batches() == std::vector<int64_t>{3, 6, 12});
  for (const char* bad : {"0", "1,", "a", "1;2", "-1", ","}) {
    spec.sweep_ranks = bad;
    CHECK(refusal([&] { sweep_ranks(spec, 4); }).find("expected numbers of ranks") != std::string::npos);
  }
  spec.sweep_ranks = "5";
  CHECK(refusal([&] { sweep_ranks(spec, 4); }).find("mpirun -n 5") != std::string::npos);
  spec.scaling = "strong";
  spec.train.tp = 2;
  CHECK(refusal([&] { scaling_cases(spec, small_model(), {1, 2}); }).find("1 ranks: ") != std::string::npos);

  // Amdahl with P = 0.1: t(N) = 0.9 / N + 0.1.
  spec.train.tp = 1;
  std::vector<BenchRecord> records;
  for (const double n : {1.0, 2.0, 4.0}) {
    const TrainSeries s = series_of({{0.9 / n + 0.1}});
    records.push_back(train_record(s, expected_training(s, nullptr, 0), spec));
  }
  const ScalingAnswer answer = scaling_answer(spec, ranks, records);
  REQUIRE(answer.record.size() == 1);
  CHECK(median_of_metric(answer.record[0], "scaling.serial_share") == doctest::Approx(0.1).epsilon(1e-3));
  CHECK(median_of_metric(answer.record[0], "scaling.communication") == doctest::Approx(0).epsilon(1e-3));
  CHECK(answer.table.find("3.08") != std::string::npos);  // 1 / 0.325
  CHECK(answer.table.find("76.9 %") != std::string::npos);
  records[0].quiet = false;
  records[0].cpu_share = 0.35;
  const ScalingAnswer busy = scaling_answer(spec, ranks, records);
  CHECK(busy.table.find("NOT QUIET") != std::string::npos);
  CHECK_FALSE(busy.record.at(0).quiet);
  CHECK(busy.record.at(0).cpu_share == 0.35);
  records.pop_back();
  CHECK(scaling_answer(spec, {1, 2}, records).record.empty());
}

TEST_CASE("random tokens: within the vocabulary, all of it, the same again") {
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / ("train_bench_" + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  write_random_tokens(dir / "a.h5", 70001, 53, 1);
  write_random_tokens(dir / "b.h5", 70001, 53, 1);
  write_random_tokens(dir / "c.h5", 70001, 53, 2);
  const TokenFile a(dir / "a.h5"), b(dir / "b.h5"), c(dir / "c.h5");
  CHECK(a.n_tokens() == 70001);
  CHECK(a.fingerprint() == b.fingerprint());
  CHECK(a.fingerprint() != c.fingerprint());
  std::vector<int32_t> ids(70001);
  a.read(0, 70001, ids.data());
  const std::set<int32_t> seen(ids.begin(), ids.end());
  CHECK(seen.size() == 53);
  CHECK(*seen.rbegin() == 52);
  std::filesystem::remove_all(dir);
}

TEST_CASE("flags: dtrain's own, and what does not go together") {
  TrainBenchSpec spec;
  CHECK(find_field(fields(spec), "global-batch") != nullptr);
  CHECK(find_field(fields(spec), "dry-run") == nullptr);
  CHECK(refusal([&] { check_train_bench(spec); }).find("--model is missing") == 0);
  spec.train.model = "small";
  spec.ladder = true;
  check_train_bench(spec);
  spec.train.zero = 1;
  CHECK(refusal([&] { check_train_bench(spec); }).find("leave them out") != std::string::npos);
  spec.train.zero = 0;
  spec.sweep_ranks = "1";
  CHECK(refusal([&] { check_train_bench(spec); }).find("exclude each other") != std::string::npos);
}
