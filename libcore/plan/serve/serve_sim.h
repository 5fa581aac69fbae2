// A server's life on a virtual clock: the real scheduler, its pool and its prefix tree, told of arrivals as they come
// and of steps that take as long as they are priced at. Pure: the same in every run.
#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "libcore/plan/serve/serve_price.h"
#include "libcore/plan/serve/workload.h"
#include "libcore/serve/scheduler.h"

namespace rw {

// What a server does of a request. whole: all of it. prefill: the prompt and the first token. decode: from the second
// token on; keys and values of the prompt have been sent by a prefill server, and only what is computed again after a
// preemption costs a prompt.
enum class ServeRole : uint8_t { whole, prefill, decode };

// A request reaches the scheduler at ready_s; latencies count from since_s (of a decode server: the first token's
// time).
struct SimArrival {
  int64_t request = 0;  // of the workload
  double ready_s = 0, since_s = 0;
};
// Every request of a workload, with its times between arrivals stretched: one of n servers sees them at a rate n times
// lower.
std::vector<SimArrival> stretched_arrivals(const Workload& workload, double stretch);

struct SimQuery {
  const Workload& workload;
  std::vector<SimArrival> arrivals;  // any order
  SchedulerSpec scheduler;
  int64_t max_model_len = 0;  // longer requests are refused; 0: no bound
  ServeRole role = ServeRole::whole;
  std::function<double(const PricedStep&)> step_s;
  bool keep_gaps = false;
};

struct SimRequest {
  int64_t request = 0;
  bool refused = false;                                     // it could never run
  double since_s = 0, first_s = 0, last_s = 0;              // first, last token of this server
  double worst_gap_s = 0, gap_sum_s = 0;                    // between tokens; of a decode server also before its first
  int64_t gaps = 0, tokens = 0;                             // tokens: drawn here
  double first_gap_s() const { return first_s - since_s; }  // time to first token
  double mean_gap_s() const { return gaps > 0 ? gap_sum_s / static_cast<double>(gaps) : 0; }
};

constexpr size_t kMostGaps = size_t{1} << 23;

struct SimResult {
  std::vector<SimRequest> requests;  // as arrivals
  // Gaps between tokens, when kept: all of them, or, of more than kMostGaps, every second, fourth, ... in time.
  std::vector<float> gaps_s;
  double begin_s = 0, end_s = 0;  // first arrival, last token
  double busy_s = 0;              // of steps
  int64_t steps = 0, tokens = 0, preemptions = 0;
  int64_t prefix_queries = 0, prefix_hits = 0;  // prompt tokens asked for, found
  double mean_waiting = 0, mean_kv_usage = 0;   // over time; usage: pages that running sequences hold
  int64_t most_waiting = 0;
  double most_kv_usage = 0;
  int64_t pages_left = 0;  // free or kept by the prefix cache alone, at the end: all of them
};
SimResult simulate(const SimQuery& query);

}  // namespace rw
