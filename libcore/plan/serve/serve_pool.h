// Servers of one kind in one role, of which one is simulated with its share of the requests; and how many requests a
// second such a server sustains.
#pragma once
#include <functional>
#include <vector>

#include "libcore/plan/serve/serve_instance.h"
#include "libcore/plan/serve/serve_sim.h"
#include "libcore/plan/serve/serve_stats.h"

namespace rw {

// Of one server in its role: prefill servers answer for the first token, decode servers for the gaps.
double kept_share(const SimResult& run, ServeRole role, const ServeObjective& objective);

struct ServePool {
  ServeInstance& instance;  // that fits; its price keeps what it has worked out
  ServeRole role = ServeRole::whole;
  // Of a decode server: seconds from a request's first token to its keys and values being there.
  std::function<double(const WorkloadRequest&)> handoff_s = {};

  // Arrivals at a decode server are of first tokens: later by the hand-over.
  std::vector<SimArrival> handed_over(const Workload& workload, std::vector<SimArrival> arrivals) const;
  SimResult run(const Workload& workload, std::vector<SimArrival> arrivals, bool keep_gaps) const;
  // One of `replicas`.
  SimResult run_share(const Workload& workload, double replicas, bool keep_gaps) const;
};

// Requests a second, like the workload's, at which one server still keeps the objective; found by halving the rate,
// then by bisection to 2 %, over the workload's first requests. 0: at no rate worth a server (1/64 of its capacity).
struct Sustained {
  double rate = 0;
  double capacity = 0;  // requests a second when all of them wait: no server does more
  // At hardly any load, what the wished share of the requests has at most: first token and gap (worst or mean).
  double lone_ttft_s = 0, lone_itl_s = 0;
};
// The requests that it looks at.
Workload probe_of(const Workload& workload);
Sustained sustained(const ServePool& pool, const Workload& workload, const ServeObjective& objective);

}  // namespace rw
