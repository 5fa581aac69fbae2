// What users of a server feel, from a simulation: time to first token (TTFT), gaps between tokens (ITL), end to end,
// and the share of requests that keep to an objective.
//
// TTFT counts from the arrival. ITL percentiles are over all gaps of all requests. A request keeps to the objective
// (SLO) when its TTFT and its gaps do: its worst gap, as dserve's metrics count, or its mean gap (TPOT), as DistServe
// does (Zhong et al. 2024). Goodput: requests that keep to it, a second; attainment: their share.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/plan/serve/serve_sim.h"

namespace rw {

struct ServeObjective {
  double ttft_s = 0, itl_s = 0;
  double attainment = 0.99;  // share of the requests that must keep to both
  enum class Gap : uint8_t { worst, mean } gap = Gap::worst;
};

struct Percentiles {
  double p50 = 0, p90 = 0, p99 = 0;
};
// By nearest rank; the values are reordered. Zeros of nothing.
Percentiles percentiles(std::vector<float>& values);
// The smallest value that a share of them does not exceed.
double quantile(std::vector<float>& values, double share);

struct ServeStats {
  int64_t requests = 0, refused = 0;
  Percentiles ttft_s, itl_s, e2e_s;
  double attainment = 0, ttft_attainment = 0, itl_attainment = 0;
  // What the objective would have to be for the wished share to keep to each half of it.
  double ttft_kept_s = 0, itl_kept_s = 0;
  // Of all replicas together.
  double requests_per_s = 0, goodput = 0, output_tokens_per_s = 0;
  // Of one replica (of a split pair: the decode server, but for the prefix cache).
  double mean_waiting = 0, mean_kv_usage = 0, most_kv_usage = 0, busy = 0;
  int64_t most_waiting = 0, preemptions = 0, steps = 0;
  double prefix_hit_rate = 0;
};

// One of `replicas` servers was simulated with its share of the arrivals; the result's gaps are used up.
ServeStats serve_stats(SimResult& run, const ServeObjective& objective, double replicas);
// The same of a pair: prompts by one of so many prefill servers, the rest by one of so many decode servers. Both saw
// the workload's requests in the same order.
struct SplitRun {
  SimResult& prefill;
  SimResult& decode;
  double decode_replicas = 1;
};
ServeStats serve_stats(const SplitRun& run, const ServeObjective& objective);

Json serve_stats_json(const ServeStats& stats);

}  // namespace rw
