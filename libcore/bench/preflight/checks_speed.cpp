#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/median.h"
#include "libcore/bench/preflight/judge.h"

namespace rw {
namespace {

constexpr const char* kLayer = "speed";
constexpr double kFailPair = 5.0 / 8, kFailGemm = 3.0 / 4;  // of what warns
constexpr double kLateRatio = 2, kLateUs = 5;               // a latency that is worth telling: both

// A rank that is in all of several bad pairs is the one to look at.
std::string common_rank(const std::vector<PairOutlier>& bad, const JobFacts& job) {
  if (bad.size() < 2) return {};
  for (const int rank : {bad[0].pair.a, bad[0].pair.b})
    if (std::all_of(bad.begin(), bad.end(), [&](const PairOutlier& o) { return o.pair.a == rank || o.pair.b == rank; }))
      return fmt::format("; {} is in all of them", rank_name(job.ranks.at(static_cast<size_t>(rank))));
  return {};
}

std::string pair_name(const JobFacts& job, const PairSpeed& p) {
  return fmt::format("{} and {}", rank_name(job.ranks.at(static_cast<size_t>(p.a))),
                     rank_name(job.ranks.at(static_cast<size_t>(p.b))));
}

CheckResult check_bandwidth(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("speed.pair_bandwidth", kLayer,
              fmt::format("every pair has {:.0f} % of the median pair's bandwidth or more (--min-pair-ratio)",
                          100 * needs.min_pair_ratio));
  std::vector<PairOutlier> bad = pair_outliers(job.pairs, needs.min_pair_ratio);
  std::erase_if(bad, [](const PairOutlier& o) { return !o.is_slow; });
  std::string lone;
  for (const PairOutlier& o : bad)
    j.find(o.bandwidth_ratio < needs.min_pair_ratio * kFailPair ? CheckStatus::fail : CheckStatus::warn,
           {o.pair.a, o.pair.b},
           fmt::format("{}: {:.3g} GB/s, {:.0f} % of the median{}", pair_name(job, o.pair), o.pair.gb_s,
                       100 * o.bandwidth_ratio, &o == &bad.back() ? common_rank(bad, job) : ""));
  // A pair that is alone of its kind is its own median.
  constexpr double kLeastSharedGbS = 1;
  for (const bool same : {true, false}) {
    const auto is_kind = [&](const PairSpeed& p) { return p.same_node == same; };
    if (std::count_if(job.pairs.begin(), job.pairs.end(), is_kind) != 1) continue;
    const PairSpeed& only = *std::find_if(job.pairs.begin(), job.pairs.end(), is_kind);
    lone = fmt::format("; {} is the only pair {}: nothing to compare it with", pair_name(job, only),
                       same ? "within a node" : "between nodes");
    if (same && only.gb_s < kLeastSharedGbS)
      j.find(CheckStatus::warn, {only.a, only.b},
             fmt::format("{}: {:.3g} GB/s, the only pair within a node: expected {} GB/s or more of shared memory",
                         pair_name(job, only), only.gb_s, kLeastSharedGbS));
  }
  double least = kUnknown;
  for (const PairSpeed& p : job.pairs) least = std::isnan(least) ? p.gb_s : std::min(least, p.gb_s);
  return j.done(
      std::isnan(least) ? "no pairs" : fmt::format("{:.3g} GB/s or more{}", least, lone),
      "look at that link: speed (ethtool IF), cable, switch port, PCIe width of the card, who else uses it; within a "
      "host at who else runs there (top): ranks that share a core wait for each other");
}

CheckResult check_latency(const JobFacts& job) {
  Judgement j("speed.pair_latency", kLayer,
              fmt::format("every pair within {:.0f} times the median latency", kLateRatio));
  std::vector<PairOutlier> bad = pair_outliers(job.pairs, 1 / kLateRatio);
  std::erase_if(
      bad, [](const PairOutlier& o) { return !o.is_late || o.pair.latency_us * (1 - 1 / o.latency_ratio) < kLateUs; });
  for (const PairOutlier& o : bad)
    j.find(CheckStatus::warn, {o.pair.a, o.pair.b},
           fmt::format("{}: {:.3g} us, {:.1f} times the median{}", pair_name(job, o.pair), o.pair.latency_us,
                       o.latency_ratio, &o == &bad.back() ? common_rank(bad, job) : ""));
  double most = 0;
  for (const PairSpeed& p : job.pairs) most = std::max(most, p.latency_us);
  return j.done(job.pairs.empty() ? "no pairs" : fmt::format("{:.3g} us or less", most),
                "look at the way between the two: another switch, a busy host, interrupt moderation, power saving");
}

CheckResult check_gemm(const JobFacts& job, const PreflightNeeds& needs) {
  Judgement j("speed.gemm", kLayer,
              fmt::format("every rank multiplies matrices at {:.0f} % of the median rank's speed or more "
                          "(--min-gemm-ratio)",
                          100 * needs.min_gemm_ratio));
  std::vector<double> speeds;
  for (const RankFacts& f : job.ranks)
    if (!std::isnan(f.gemm_gflop_per_s)) speeds.push_back(f.gemm_gflop_per_s);
  if (speeds.empty()) return j.done("not measured", "");
  const double middle = median(speeds);
  for (const RankFacts& f : job.ranks) {
    const double ratio = f.gemm_gflop_per_s / middle;
    if (ratio < needs.min_gemm_ratio)
      j.find(ratio < needs.min_gemm_ratio * kFailGemm ? CheckStatus::fail : CheckStatus::warn, {f.rank},
             fmt::format("{}: {:.3g} GFLOP/s, {:.0f} % of the median", rank_name(f), f.gemm_gflop_per_s, 100 * ratio));
  }
  return j.done(
      fmt::format("{:.3g} GFLOP/s a thread, {:.3g} at least", middle, *std::min_element(speeds.begin(), speeds.end())),
      "look for another job there (top), a lower clock, heat, a CPU of another kind; leave the host out: a "
      "step takes as long as its slowest rank");
}

}  // namespace

std::vector<CheckResult> speed_checks(const JobFacts& job, const PreflightNeeds& needs) {
  return {check_latency(job), check_bandwidth(job, needs), check_gemm(job, needs)};
}

}  // namespace rw
