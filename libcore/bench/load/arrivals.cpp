#include "libcore/bench/load/arrivals.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"
#include "libcore/plan/serve/workload.h"

namespace rw {
namespace {

// The rate at a share of the way, and the mean of its reciprocal over the way (the seconds of a request on average).
double ramp_rate(const ArrivalPlan& p, double share) {
  return p.ramp == "linear" ? p.ramp_from + (p.ramp_to - p.ramp_from) * share
                            : p.ramp_from * std::pow(p.ramp_to / p.ramp_from, share);
}
double mean_gap(const ArrivalPlan& p) {
  if (p.ramp == "none") return 1 / p.rate;
  if (p.ramp_from == p.ramp_to) return 1 / p.ramp_from;
  const double log_ratio = std::log(p.ramp_to / p.ramp_from);
  return p.ramp == "linear" ? log_ratio / (p.ramp_to - p.ramp_from) : (1 / p.ramp_from - 1 / p.ramp_to) / log_ratio;
}

// Gaps of mean 1, before requests 1 to n - 1; the planner draws the same ones.
std::vector<double> unit_times(const ArrivalPlan& p) {
  const Workload w =
      describe_workload(fmt::format("in=1,out=1,rate=1,requests={},burst={}", p.n, 1 / p.burstiness), p.seed);
  std::vector<double> times;
  for (const WorkloadRequest& r : w.requests) times.push_back(r.arrival_s);
  return times;
}

}  // namespace

std::vector<double> arrival_times(const ArrivalPlan& p) {
  if (p.n <= 1 || (p.ramp == "none" && std::isinf(p.rate)))
    return std::vector<double>(static_cast<size_t>(std::max<int64_t>(p.n, 0)), 0.0);
  std::vector<double> times = unit_times(p);
  const auto gaps = static_cast<double>(p.n - 1);
  if (p.ramp == "none") {
    const double stretch = gaps / p.rate / times.back();
    for (double& t : times) t *= stretch;
    return times;
  }
  double now = 0, before = 0;
  for (size_t i = 1; i < times.size(); ++i) {
    now += (times[i] - before) / ramp_rate(p, static_cast<double>(i) / gaps);
    before = times[i];
    times[i] = now;
  }
  return times;
}

int64_t requests_within(const ArrivalPlan& p, double duration_s) {
  if (p.ramp == "none" && std::isinf(p.rate))
    fail(ErrorKind::usage,
         "--duration: expected a --request-rate beside it, found none (all at once); say --num-prompts");
  const double n = std::floor(duration_s / mean_gap(p)) + 1;
  if (n > static_cast<double>(kMostRequests))
    fail(ErrorKind::usage, "--duration: expected at most {} requests, found {:.0f}; a shorter time or a lower rate",
         kMostRequests, n);
  return static_cast<int64_t>(n);
}

}  // namespace rw
