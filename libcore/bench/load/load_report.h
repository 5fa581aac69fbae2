// What is told of a load: JSON under the keys of `vllm bench serve`, and a table for people.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/load/latency.h"
#include "libcore/bench/load/load_spec.h"
#include "libcore/bench/load/rate_search.h"
#include "libcore/bench/load/server_spans.h"

namespace rw {

// One run of a load.
struct LoadResult {
  std::string date, model_id;  // date: UTC, of its start
  LoadRun run;
  LoadSummary summary;
  ClientHealth health;
  std::vector<ConcurrencyPoint> curve;
  int64_t golden_checked = 0;  // requests whose text was compared; those that differ ended as wrong_text
  std::optional<SpanJoin> spans;
  int64_t repeats = 1;  // whose results these are, combined (load_repeats.h)
};

// "random in 512 out 128, 4 requests/s": what a record is named by.
std::string load_name(const ServeLoadSpec& spec, const ServeLoadPlan& plan);
// Price an hour over tokens a second, to a million tokens; NaN without tokens.
double cost_per_million(double price_per_hour, double tokens_per_s);

// Keys as `vllm bench serve --save-result` names them where the meaning is the same: duration, completed, mean_ttft_ms
// (from the actual send time, which is what vLLM means), p99_itl_ms (gaps of chunks), ... Ours beside them:
// mean_ttft_from_due_ms, p99_itl_token_ms, mean_queue_ms, attainment, ends. What is not known is null.
Json load_summary_json(const LoadSummary& summary);
// The same with what was asked (date, model_id, request_rate, ...), the client's health, the curve, and the arrays of
// --save-detailed.
Json load_result_json(const ServeLoadSpec& spec, const ServeLoadPlan& plan, const LoadResult& result);
std::string load_result_text(const ServeLoadSpec& spec, const ServeLoadPlan& plan, const LoadResult& result);

Json rate_answer_json(const RateAnswer& answer);
// `best`: the run at the answer; none when there is no answer.
std::string rate_answer_text(const ServeLoadSpec& spec, const RateAnswer& answer, const LoadResult* best);

std::string objective_text(const LoadObjective& objective);  // "TTFT <= 500 ms, ITL <= 50 ms"

}  // namespace rw
