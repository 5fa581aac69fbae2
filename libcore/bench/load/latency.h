// What users felt, from what the client saw. Definitions, since tools differ in them:
//   TTFT  first chunk with text, from the intended send time (due) and, beside it, from the actual one (sent).
//   ITL   gap between two tokens: a chunk of k tokens after a gap g is k tokens with the gaps g, 0, ..., 0 in
//         "itl" as vLLM's benchmark counts chunks (one gap g), and k gaps of g / k in "itl_token".
//   TPOT  (E2E - TTFT) / (output tokens - 1); requests of one token have none.
//   E2E   last byte, from due and from sent.
// Goodput counts requests that keep to all objectives given, from the intended time. Concurrency: requests sent and not
// ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/load/load_types.h"

namespace rw {

struct LatencySummary {
  int64_t n = 0;
  double mean = 0, median = 0, std = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;  // ms; NaN of nothing
};
LatencySummary summarize_ms(const std::vector<double>& values_ms);

struct LoadObjective {
  double ttft_ms = 0, itl_ms = 0, tpot_ms = 0, e2e_ms = 0;  // 0: none. itl: the request's worst token gap
  bool any() const { return ttft_ms > 0 || itl_ms > 0 || tpot_ms > 0 || e2e_ms > 0; }
};

struct LoadSummary {
  double duration_s = 0;  // first due to last end
  int64_t requests = 0, completed = 0, failed = 0;
  std::vector<int64_t> ends;  // by LoadEnd
  int64_t input_tokens = 0, output_tokens = 0;
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;
  double goodput = 0, attainment = 1;  // requests/s that keep to the objective; their share of all
  LatencySummary ttft, ttft_sent, itl, itl_token, tpot, e2e, e2e_sent, client_late, queue, prefill, decode, network;
  double retry_rate = 0, reject_rate = 0;
  bool tokens_exact = true;
  int64_t max_concurrent = 0;
  double mean_concurrent = 0;  // sum of E2E over duration
};
LoadSummary summarize_load(const LoadRun& run, const LoadObjective& objective);

// Requests under way over time: `points` (time, how many) at even steps.
struct ConcurrencyPoint {
  double at_s = 0;
  int64_t running = 0;
  double output_tokens_per_s = 0;
};
std::vector<ConcurrencyPoint> concurrency_curve(const LoadRun& run, int64_t points);

// Whether the client itself was fit to measure: late sends beyond 5 ms at p99 and a CPU that was full void a run.
struct ClientHealth {
  double late_p99_ms = 0, cpu_share = 0;  // cpu: CPU seconds over wall (1: one core full)
  bool is_void = false;
  std::string why;
};
ClientHealth client_health(const LoadRun& run, bool open_loop);

// Keys as `vllm bench serve --save-result` names them where the meaning is the same (duration, completed,
// mean_ttft_ms, p99_itl_ms, ...); ours beside them.
Json load_summary_json(const LoadSummary& summary);

}  // namespace rw
