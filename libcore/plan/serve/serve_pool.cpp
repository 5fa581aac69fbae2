#include "libcore/plan/serve/serve_pool.h"

#include <algorithm>
#include <cmath>

namespace rw {
namespace {

// Enough for a 99th percentile to mean something; all of them would not move the answer by the 2 % of the bisection.
constexpr size_t kProbeRequests = 1000, kLoneRequests = 100;

Workload first_requests(const Workload& w, size_t n) {
  if (w.requests.size() <= n) return w;
  Workload part{.name = w.name,
                .requests = {w.requests.begin(), w.requests.begin() + static_cast<std::ptrdiff_t>(n)},
                .rate = w.rate};
  return part;
}

constexpr double kLeastShare = 1.0 / 64;

// Requests a second of all requests at once.
double capacity(const ServePool& pool, const Workload& w) {
  const SimResult run = pool.run_share(w, 0, false);
  const double span = run.end_s - run.begin_s;
  return span > 0 ? static_cast<double>(run.requests.size()) / span : 0;
}

// One after the other: alone, none takes longer than the slowest of all at once.
SimResult lone(const ServePool& pool, const Workload& w) {
  double longest = 0;
  for (const SimRequest& r : pool.run_share(w, 0, false).requests) longest = std::max(longest, r.last_s - r.since_s);
  std::vector<SimArrival> arrivals = stretched_arrivals(w, 0);
  for (size_t i = 0; i < arrivals.size(); ++i)
    arrivals[i].ready_s = arrivals[i].since_s = static_cast<double>(i) * longest;
  return pool.run(w, pool.handed_over(w, std::move(arrivals)), false);
}

}  // namespace

double kept_share(const SimResult& run, ServeRole role, const ServeObjective& o) {
  int64_t kept = 0;
  for (const SimRequest& r : run.requests) {
    const double gap = o.gap == ServeObjective::Gap::worst ? r.worst_gap_s : r.mean_gap_s();
    kept += !r.refused && (role == ServeRole::decode || r.first_gap_s() <= o.ttft_s) &&
            (role == ServeRole::prefill || gap <= o.itl_s);
  }
  return static_cast<double>(kept) / static_cast<double>(std::max<size_t>(run.requests.size(), 1));
}

Workload probe_of(const Workload& workload) { return first_requests(workload, kProbeRequests); }

SimResult ServePool::run(const Workload& workload, std::vector<SimArrival> arrivals, bool keep_gaps) const {
  return simulate({.workload = workload,
                   .arrivals = std::move(arrivals),
                   .scheduler = instance.scheduler,
                   .max_model_len = instance.max_len,
                   .role = role,
                   .step_s = [this](const PricedStep& shape) { return instance.price->seconds(shape); },
                   .keep_gaps = keep_gaps});
}

std::vector<SimArrival> ServePool::handed_over(const Workload& workload, std::vector<SimArrival> arrivals) const {
  if (role == ServeRole::decode)
    for (SimArrival& a : arrivals) a.ready_s += handoff_s(workload.requests[static_cast<size_t>(a.request)]);
  return arrivals;
}

SimResult ServePool::run_share(const Workload& workload, double replicas, bool keep_gaps) const {
  return run(workload, handed_over(workload, stretched_arrivals(workload, replicas)), keep_gaps);
}

Sustained sustained(const ServePool& pool, const Workload& workload, const ServeObjective& objective) {
  const Workload few = first_requests(workload, kLoneRequests), probe = probe_of(workload);
  const double most = capacity(pool, probe);
  if (!(most > 0)) return {};
  Sustained found{.capacity = most};
  const SimResult alone = lone(pool, few);
  std::vector<float> ttft, gaps;
  for (const SimRequest& r : alone.requests) {
    if (r.refused) continue;
    ttft.push_back(static_cast<float>(r.first_gap_s()));
    gaps.push_back(static_cast<float>(objective.gap == ServeObjective::Gap::worst ? r.worst_gap_s : r.mean_gap_s()));
  }
  found.lone_ttft_s = quantile(ttft, objective.attainment);
  found.lone_itl_s = quantile(gaps, objective.attainment);
  if (kept_share(alone, pool.role, objective) < objective.attainment) return found;
  const auto keeps = [&](double rate) {
    return kept_share(pool.run_share(probe, probe.rate / rate, false), pool.role, objective) >= objective.attainment;
  };
  if (keeps(most)) {
    found.rate = most;
    return found;
  }
  double low = most / 2, high = most;
  while (!keeps(low)) {
    high = low;
    low /= 2;
    if (low < most * kLeastShare) return found;
  }
  while (high > low * 1.02) {
    const double middle = std::sqrt(low * high);
    (keeps(middle) ? low : high) = middle;
  }
  found.rate = low;
  return found;
}

}  // namespace rw
