#include "libcore/bench/train/scaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/train/train_record.h"
#include "libcore/plan/long_run/scaling_fit.h"

namespace rw {
namespace {

// "1.7", or "none" where it never ends.
std::string number_text(double n) { return std::isfinite(n) ? fmt::format("{:.3g}", n) : "none"; }
Json number_json(double n) { return std::isfinite(n) ? Json(n) : Json(); }

BenchRecord law_record(const TrainBenchSpec& spec, const ScalingFit& fit, const std::vector<BenchRecord>& records) {
  BenchRecord record = records.back();
  record.name = spec.scaling + " scaling: " + record.name;
  record.metrics.clear();
  const auto add = [&](const char* name, double value, Better better) {
    BenchMetric m;
    m.name = name;
    m.better = better;
    m.kind = MetricKind::fact;
    m.samples = {value};
    record.metrics.push_back(std::move(m));
  };
  add("scaling.serial_share", fit.law.p, Better::lower);
  add("scaling.communication", fit.law.c, Better::lower);
  add("scaling.fit_error", fit.error, Better::lower);
  Json points = Json::array();
  for (const BenchRecord& r : records)
    points.push_back({{"ranks", Json::parse(r.details)["ranks"]},
                      {"step_s", median_of_metric(r, "step_s")},
                      {"tokens_per_s", median_of_metric(r, "tokens_per_s")}});
  for (const BenchRecord& r : records) {
    record.quiet = record.quiet && r.quiet;
    record.cpu_share = std::min(record.cpu_share, r.cpu_share);
  }
  record.details = Json{
      {"scaling", spec.scaling},
      {"law", "S(N) = 1 / ((1 - P) / N + P + C(N))"},
      {"growth", growth_name(fit.law.growth)},
      {"p", fit.law.p},
      {"c", fit.law.c},
      {"t1_s", fit.law.t1},
      {"best_n", number_json(fit.law.best_n())},
      {"error", fit.error},
      {"points",
       points}}.dump();
  return record;
}

}  // namespace

std::vector<TrainCase> scaling_cases(const TrainBenchSpec& spec, const ModelSpec& model,
                                     const std::vector<int>& ranks) {
  const int most = ranks.back();
  const Layout largest = settle_layout(spec.train, model, most);
  std::vector<TrainCase> cases;
  for (const int n : ranks) {
    TrainCase c;
    c.name = fmt::format("{} ranks", n);
    c.spec = spec.train;
    c.ranks = n;
    if (spec.scaling == "strong") {
      c.spec.global_batch = largest.global_batch;
    } else {
      if (largest.global_batch * n % most != 0)
        fail(ErrorKind::usage,
             "--sweep-ranks {}: a global batch of {} on {} ranks leaves no whole number of samples for {}; choose a "
             "--global-batch that {} divides",
             spec.sweep_ranks, largest.global_batch, most, n, most);
      c.spec.global_batch = largest.global_batch * n / most;
    }
    try {
      settle_layout(c.spec, model, n);
    } catch (const Error& e) {
      fail(ErrorKind::usage, "--sweep-ranks {}: {} ranks: {}", spec.sweep_ranks, n, e.what());
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

ScalingAnswer scaling_answer(const TrainBenchSpec& spec, const std::vector<int>& ranks,
                             const std::vector<BenchRecord>& records) {
  ScalingAnswer answer;
  const double base = median_of_metric(records.front(), "tokens_per_s");
  answer.table =
      fmt::format("{:>6} {:>12} {:>12} {:>10} {:>11}\n", "ranks", "step ms", "tokens/s", "speed-up", "efficiency");
  std::vector<ScalingPoint> points;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const double speed = median_of_metric(records[i], "tokens_per_s"), gain = speed / base;
    const double n = ranks[i];
    answer.table +=
        fmt::format("{:>6} {:>12.2f} {:>12.0f} {:>10.2f} {:>9.1f} %\n", ranks[i],
                    1e3 * median_of_metric(records[i], "step_s"), speed, gain, 100 * gain * ranks.front() / n);
    ScalingPoint point;
    point.n = n;
    point.seconds = 1 / speed;
    points.push_back(point);
  }
  answer.table += not_quiet_text(records);
  if (points.size() < 3) {
    answer.table += "A scaling law needs three numbers of ranks or more.\n";
    return answer;
  }
  const ScalingFit fit = fit_scaling(points);
  answer.table += fmt::format(
      "S(N) = 1 / ((1 - P) / N + P + {}): P = {:.3g}, c = {:.3g}, fits within {:.1f} %; fastest at {} ranks\n",
      growth_name(fit.law.growth), fit.law.p, fit.law.c, 100 * fit.error, number_text(fit.law.best_n()));
  answer.record = {law_record(spec, fit, records)};
  return answer;
}

}  // namespace rw
