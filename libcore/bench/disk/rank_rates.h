// What many ranks did at once, seen together.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/comm/comm.h"

namespace rw {

// Bytes a second: of all ranks together (all bytes over the time from the common start to the last one's end), and of
// the slowest and the fastest rank. NaN where a rank could not.
struct RankRates {
  double total = 0, least = 0, most = 0;
};
// Collective. `seconds`: this rank's, for its `bytes`, begun with the others behind a barrier.
RankRates rank_rates(Comm& comm, int64_t bytes, double seconds);

// Repeats of one thing; in GB/s (1e9 bytes).
struct RateSeries {
  std::string name;  // "write_direct"
  std::vector<RankRates> repeats;
};
// "NAME" and, with several ranks, "NAME_rank_min", "NAME_rank_max". Nothing when a repeat is not known.
void add_rates(BenchRecord& record, const RateSeries& series, int ranks);
// A metric of any unit; without samples that are known it is left out.
struct NewMetric {
  std::string name;
  std::string unit = {};
  Better better = Better::lower;
  MetricKind kind = MetricKind::time;
};
void add_samples(BenchRecord& record, const NewMetric& what, const std::vector<double>& samples);
// The record's metrics as a table for people.
std::string metric_table(const BenchRecord& record);

}  // namespace rw
