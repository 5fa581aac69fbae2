#include "libcore/plan/measure/calibrate.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/model/exec.h"
#include "libcore/plan/measure/cpu_training_ops.h"
#include "libcore/plan/price/predict.h"

using namespace rw;

namespace {

Layout layout_of(int64_t tp, int64_t pp, int64_t dp, int64_t micro_batch, const ModelSpec& model) {
  Layout l;
  l.tp = tp;
  l.pp = pp;
  l.dp = dp;
  l.micro_batch = micro_batch;
  l.global_batch = 16;
  l.seq_len = 64;
  l.stage_layers = deal_layers(model, pp, l.seq_len);
  return l;
}

// What a machine that is as `truth` says would measure.
MeasuredRun measured(const ClusterSpec& truth, const ModelSpec& model, const Layout& layout) {
  PredictQuery query{.model = model, .cluster = truth};
  query.backend = &this_cpu_ops();
  Predictor predictor(query);
  const Prediction p = predictor.predict(layout);
  MeasuredRun run;
  run.where = layout.text() + ", micro-batch " + std::to_string(layout.micro_batch);
  run.model = model;
  run.layout = layout;
  run.precision = "bf16";
  run.ranks = layout.ranks();
  run.ranks_per_node = layout.ranks();
  run.step_s = p.step_s;
  run.seconds[static_cast<size_t>(TimeCategory::compute)] = p.time.compute + p.time.optimizer;
  run.seconds[static_cast<size_t>(TimeCategory::communication)] = p.time.exposed_tp + p.time.exposed_dp;
  return run;
}

void write(const std::filesystem::path& file, const std::string& text) { std::ofstream(file) << text; }

}  // namespace

TEST_CASE("calibrate: runs of a machine that is unlike its file bring the file near it, for other layouts too") {
  const ClusterSpec start = load_cluster_spec("cpu-2core");
  ClusterSpec truth = start;
  truth.devices[0].gemm_fraction = 0.31;
  truth.devices[0].memory_fraction = 0.45;
  truth.nodes[0].link_bandwidth /= 4;
  const ModelSpec model = load_model_spec("kjv-llama-6m");
  std::vector<MeasuredRun> runs, others;
  for (const int64_t micro_batch : {2, 8}) {
    runs.push_back(measured(truth, model, layout_of(1, 1, 1, micro_batch, model)));
    runs.push_back(measured(truth, model, layout_of(1, 1, 2, micro_batch, model)));
  }
  others.push_back(measured(truth, model, layout_of(2, 1, 1, 4, model)));
  others.push_back(measured(truth, model, layout_of(1, 2, 1, 2, model)));
  const Calibration c = calibrate(start, runs);
  CHECK(c.mean_error_before > 0.2);
  CHECK(c.mean_error_after < 0.02);
  CHECK(c.cluster.devices[0].provenance == "measured");
  CHECK(c.notes.size() == runs.size());  // few steps
  std::vector<MeasuredRun> elsewhere = {runs[0]};
  elsewhere[0].backend = "cuda";
  CHECK_THROWS_WITH_AS(calibrate(start, elsewhere), doctest::Contains("a run on cuda; the devices of cluster two CPU"),
                       Error);
  // Two runs that contradict each other: nothing explains both, and the file says no more than before.
  std::vector<MeasuredRun> torn = {runs[0], runs[0]};
  torn[1].step_s *= 3;
  const Calibration bad = calibrate(start, torn);
  CHECK(bad.mean_error_after > 0.1);
  CHECK(bad.cluster.devices[0].provenance == start.devices[0].provenance);
  const auto noted = [&](const char* what) {
    return std::any_of(bad.notes.begin(), bad.notes.end(),
                       [&](const std::string& n) { return n.find(what) != std::string::npos; });
  };
  CHECK(noted("given more than once"));
  CHECK(noted("stays marked"));
  for (const RunResidual& r : compare_runs(c.cluster, others)) {
    CAPTURE(r.layout);
    CHECK(std::abs(r.after / r.measured - 1) < 0.1);
  }
  // What is written reads back to the same predictions.
  const ClusterSpec again = parse_cluster_spec(cluster_toml(c.cluster), "again");
  CHECK(compare_runs(again, others)[0].after ==
        doctest::Approx(compare_runs(c.cluster, others)[0].after).epsilon(1e-6));
}

TEST_CASE("calibrate: no runs, and runs of more ranks than the cluster has, are refused") {
  const ClusterSpec cluster = load_cluster_spec("cpu-2core");
  CHECK_THROWS_WITH_AS(calibrate(cluster, {}), doctest::Contains("at least one run"), Error);
  const ModelSpec model = load_model_spec("kjv-llama-6m");
  MeasuredRun run = measured(cluster, model, layout_of(1, 1, 2, 2, model));
  run.ranks = 3;
  CHECK_THROWS_WITH_AS(calibrate(cluster, {run}), doctest::Contains("3 ranks"), Error);
}

TEST_CASE("measured_run: medians of the last two thirds of the steps, checkpoints left out") {
  const std::filesystem::path dir = std::filesystem::temp_directory_path() / "rankwright-measured-run";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  CHECK_THROWS_AS(read_measured_run(dir), Error);
  write(dir / "run.json", "[1]");
  CHECK_THROWS_WITH_AS(read_measured_run(dir), doctest::Contains("run.json"), Error);
  write(dir / "run.json", "{}");
  CHECK_THROWS_WITH_AS(read_measured_run(dir), doctest::Contains("model_config"), Error);
  write(dir / "run.json", R"({"model_config": {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2,
    "vocab_size": 100, "n_positions": 64}, "config": {"tp": 2, "dp": "auto", "sp": true, "micro_batch": 3,
    "global_batch": 9, "seq_len": 33, "precision": "f32"}, "hosts": ["a", "a"], "precision": "f32",
    "threads_per_rank": 1, "backend": "cpu/avx2"})");
  std::string lines = "not json\n";
  for (const double s : {9.0, 8.0, 1.0, 1.2, 1.1, 3.3})  // the last with a checkpoint of 2 s
    lines += R"({"step_s": )" + std::to_string(s) + R"(, "seconds": {"compute": )" + std::to_string(s / 2) +
             R"(, "communication": 0.25, "checkpoint": )" + (s == 3.3 ? "2" : "0") + "}}\n";
  write(dir / "metrics.jsonl", lines);
  const MeasuredRun run = read_measured_run(dir);
  CHECK(run.layout.tp == 2);
  CHECK(run.layout.sp);
  CHECK(run.layout.micro_batches() == 3);
  CHECK(run.ranks_per_node == 2);
  CHECK(run.steps == 4);
  REQUIRE(run.notes.size() == 1);
  CHECK(run.notes[0].find("1 line is no whole JSON") != std::string::npos);
  CHECK(run.step_s == doctest::Approx(1.15));  // of 1.0, 1.1, 1.2, 1.3
  CHECK(run.seconds[static_cast<size_t>(TimeCategory::communication)] == 0.25);
  write(dir / "metrics.jsonl", "{\"step_s\": 1, \"seconds\": {}}\n");
  CHECK_THROWS_WITH_AS(read_measured_run(dir), doctest::Contains("at least 4 steps"), Error);
  const auto refused = [&](const std::string& line, const char* what) {
    CAPTURE(line);
    write(dir / "metrics.jsonl", "{\"step_s\": 1, \"seconds\": {}}\n" + line + "\n");
    CHECK_THROWS_WITH_AS(read_measured_run(dir), doctest::Contains(what), Error);
  };
  refused(R"({"step_s": null, "seconds": {}})", "metrics.jsonl:2: key \"step_s\": expected a number, found null");
  refused(R"({"step_s": "1", "seconds": {}})", "metrics.jsonl:2: key \"step_s\": expected a number");
  refused(R"({"step_s": 0, "seconds": {}})", "metrics.jsonl:2: key \"step_s\": expected more than 0");
  refused(R"({"step_s": 1, "seconds": null})", "metrics.jsonl:2: key \"seconds\": expected an object");
  refused(R"({"step_s": 1, "seconds": {"compute": "x"}})", "metrics.jsonl:2: seconds: key \"compute\"");
  refused(R"({"step_s": 1, "seconds": {"compute": -1}})", "expected 0 or more");
  refused(R"({"step_s": 1, "seconds": {"checkpoint": 2}})", "expected more than 0 and than seconds.checkpoint");
  const std::string facts = read_file(dir / "run.json");
  for (const auto& [was, is] :
       std::vector<std::pair<std::string, std::string>>{{"\"cpu/avx2\"", "null"},
                                                        {"\"threads_per_rank\": 1", "\"threads_per_rank\": \"1\""},
                                                        {"\"threads_per_rank\": 1", "\"threads_per_rank\": 0"},
                                                        {"\"hosts\": [\"a\", \"a\"]", "\"hosts\": null"},
                                                        {"\"hosts\": [\"a\", \"a\"]", "\"hosts\": [1, 2]"},
                                                        {"\"precision\": \"f32\",\n", "\"precision\": 32,\n"}}) {
    CAPTURE(is);
    std::string damaged = facts;
    REQUIRE(damaged.find(was) != std::string::npos);
    damaged.replace(damaged.find(was), was.size(), is);
    write(dir / "run.json", damaged);
    CHECK_THROWS_WITH_AS(read_measured_run(dir), doctest::Contains("run.json: key"), Error);
  }
  std::filesystem::remove_all(dir);
}

TEST_CASE("cpu_training_ops: the law through two sizes") {
  // 300 * s / (s + 128): 200 at 256, 266.67 at 1024.
  const SizeLaw law = size_law(256, 200, 1024, 300.0 * 1024 / 1152);
  CHECK(law.large == doctest::Approx(300));
  CHECK(law.half == doctest::Approx(128));
  CHECK(size_law(256, 200, 1024, 150).half == 0);  // the smaller is faster: no law, the better of the two
  CHECK(size_law(256, 200, 1024, 150).large == 200);
}

TEST_CASE("cpu_training_ops: ops run at some speed in every type") {
  for (const DType t : {DType::f32, DType::bf16}) {
    CHECK(linear_layer_flops({.t = t, .threads = 1, .seconds = 0}, 37) > 0);
    CHECK(attention_flops({.t = t, .threads = 2, .seconds = 0}) > 0);
  }
}
