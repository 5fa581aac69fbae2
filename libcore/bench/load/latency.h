// What users felt, from what the client saw. Definitions, since tools differ in them:
//   TTFT  first chunk with text, from the intended send time (due) and, beside it, from the actual one (sent).
//   ITL   "itl": gaps between chunks, as vLLM's benchmark counts them. "itl_token": gaps between tokens; a chunk of k
//         tokens that came g after the one before is k gaps of g / k, and the first chunk's tokens came together (gaps
//         of 0), so that a request of n tokens has n - 1 gaps that add up to last chunk - first chunk.
//   TPOT  (E2E - TTFT) / (output tokens - 1); requests of one token have none.
//   E2E   last byte, from due and from sent.
// Latencies are of requests that ended well (LoadEnd::ok); attainment counts the others against the server. Goodput
// counts requests that keep to all objectives given, from the intended time. Concurrency: requests sent and not ended.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/bench/load/load_types.h"
#include "libcore/bench/record/machine.h"

namespace rw {

struct LatencySummary {
  int64_t n = 0;
  double mean = 0, median = 0, std = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;  // ms; NaN of nothing
};
// std: of the values themselves (n), as numpy and vLLM's benchmark take it. Percentiles: quantile_of.
LatencySummary summarize_ms(const std::vector<double>& values_ms);

struct LoadObjective {
  double ttft_ms = 0, itl_ms = 0, tpot_ms = 0, e2e_ms = 0;  // 0: none. itl: the request's worst token gap
  bool any() const { return ttft_ms > 0 || itl_ms > 0 || tpot_ms > 0 || e2e_ms > 0; }
};

struct LoadSummary {
  double duration_s = 0;    // first due to last end
  bool input_known = true;  // the prompts' tokens of all completed requests; else input_tokens are of those known
  int64_t requests = 0, completed = 0, disconnected = 0, failed = 0;
  std::vector<int64_t> ends;                    // by LoadEnd
  int64_t input_tokens = 0, output_tokens = 0;  // of the completed ones
  int64_t cached_tokens = -1;                   // of their prompts, out of the prefix cache; -1: no reply said
  double request_throughput = 0, output_throughput = 0, total_token_throughput = 0;  // a second
  // Requests/s that keep to the objective; their share of all but those that were told to disconnect.
  double goodput = 0, attainment = 1;
  LatencySummary ttft, ttft_sent, itl, itl_token, tpot, e2e, e2e_sent, client_late, queue, prefill, decode, network;
  double retry_rate = 0, reject_rate = 0;  // retries, and replies of 429 or 503 that stood, to a request
  bool tokens_exact = true;                // every completed request's chunks have known token counts
  int64_t max_concurrent = 0;
  double mean_concurrent = 0;  // sum of E2E over duration
};
LoadSummary summarize_load(const LoadRun& run, const LoadObjective& objective);

// Gaps of one request, ms: between chunks, and between tokens.
std::vector<double> chunk_gaps_ms(const LoadOutcome& outcome);
std::vector<double> token_gaps_ms(const LoadOutcome& outcome);
bool keeps(const LoadOutcome& outcome, const LoadObjective& objective);

// Requests under way over time, at the middles of `points` even steps, and the tokens that came within each step.
struct ConcurrencyPoint {
  double at_s = 0;
  int64_t running = 0;
  double output_tokens_per_s = 0;
};
std::vector<ConcurrencyPoint> concurrency_curve(const LoadRun& run, int64_t points);

// Whether the client itself was fit to measure: late sends beyond kLateMs at p99 of an open loop, and a core that was
// full, void a run.
constexpr double kLateMs = 5, kFullCore = 0.95;
struct ClientHealth {
  double late_p99_ms = 0, cpu_share = 0;  // cpu: CPU seconds over wall (1: one core full)
  // Of this host's CPU time: what neither the client nor the server took. NaN: not known.
  double others_share = 0;
  bool is_void = false;
  bool is_quiet() const { return !(others_share > kQuietOthersShare); }  // not known: nothing speaks against it
  std::string why;
};
// `open_loop`: nothing but the clock decides when a request goes. A late client that used little of its core was kept
// from it: `why` says by whom.
ClientHealth client_health(const LoadRun& run, bool open_loop, double others_share);

}  // namespace rw
