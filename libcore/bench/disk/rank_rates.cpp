#include "libcore/bench/disk/rank_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/bench/record/statistics.h"

namespace rw {

RankRates rank_rates(Comm& comm, int64_t bytes, double seconds) {
  const bool all_know =
      comm.all_reduce_value(int64_t{std::isfinite(seconds) && seconds > 0 ? 1 : 0}, ReduceOp::min) > 0;
  const double known = all_know ? seconds : 1, size = static_cast<double>(bytes);
  const double longest = comm.all_reduce_value(known, ReduceOp::max);
  const double sum = comm.all_reduce_value(size, ReduceOp::sum);
  const double least = comm.all_reduce_value(size / known, ReduceOp::min);
  const double most = comm.all_reduce_value(size / known, ReduceOp::max);
  if (!all_know) return {.total = NAN, .least = NAN, .most = NAN};
  return {.total = sum / longest, .least = least, .most = most};
}

void add_samples(BenchRecord& record, const NewMetric& what, const std::vector<double>& samples) {
  if (samples.empty() || !std::all_of(samples.begin(), samples.end(), [](double v) { return std::isfinite(v); }))
    return;
  BenchMetric m;
  m.name = what.name;
  m.unit = what.unit;
  m.better = what.better;
  m.kind = what.kind;
  m.samples = samples;
  record.metrics.push_back(std::move(m));
}

void add_rates(BenchRecord& record, const RateSeries& series, int ranks) {
  std::vector<double> total, least, most;
  for (const RankRates& r : series.repeats) {
    total.push_back(r.total / 1e9);
    least.push_back(r.least / 1e9);
    most.push_back(r.most / 1e9);
  }
  add_samples(record, {.name = series.name, .unit = "GB/s", .better = Better::higher}, total);
  if (ranks == 1) return;
  add_samples(record, {.name = series.name + "_rank_min", .unit = "GB/s", .better = Better::higher}, least);
  add_samples(record,
              {.name = series.name + "_rank_max", .unit = "GB/s", .better = Better::neither, .kind = MetricKind::fact},
              most);
}

std::string metric_table(const BenchRecord& record) {
  std::string out = fmt::format("{:<34} {:>12} {:>12} {:>12}  {}\n", "", "median", "least", "most", "unit");
  for (const BenchMetric& m : record.metrics)
    out += fmt::format("{:<34} {:>12.4g} {:>12.4g} {:>12.4g}  {}\n", m.name, quantile_of(m.samples, 0.5),
                       quantile_of(m.samples, 0), quantile_of(m.samples, 1), m.unit);
  return out;
}

}  // namespace rw
