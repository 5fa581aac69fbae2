// What a server says of itself before and after a load: its model, and whether it is back where it was.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/bench/load/load_runner.h"
#include "libcore/telemetry/prometheus_text.h"

namespace rw {

struct ServedModelInfo {
  std::string id;             // of the first model in /v1/models, or the one asked for
  bool is_ours = false;       // owned_by rankwright: takes our request fields
  int64_t max_model_len = 0;  // 0: it does not say
};
// `text` is the reply of /v1/models from `where`; `wanted` "" takes the first. Error{input} when it is no list of
// models, or none of them is the wanted one (names those there are).
ServedModelInfo parse_models(const std::string& text, const std::string& wanted, const std::string& where);
// Asks the target. Error{runtime}: no connection, or a status that is no success (names it). With `wanted` a server
// that has no such route (404) is taken at the caller's word.
ServedModelInfo ask_models(const LoadTarget& target, const std::string& wanted, double timeout_s);

// A gauge that a load raises and its end must bring back.
struct ServerLevel {
  std::string name;  // as the server calls it, or "rankwright_kv_pages in use"
  double value = 0;
};
// Of the gauges that Rankwright, vLLM, SGLang and llama.cpp give, those that are there. Cache pages count as in use
// unless they are free or kept by the prefix cache (where the server tells them apart; elsewhere kept pages are free
// ones already).
std::vector<ServerLevel> server_levels(const MetricsText& metrics);
// What /metrics says within `timeout_s`.
struct AskedLevels {
  std::optional<std::vector<ServerLevel>> levels;  // none: `why`
  std::string why;  // no reply, another status than 200, no Prometheus text, none of the gauges
};
AskedLevels ask_levels(const LoadTarget& target, double timeout_s);

struct Leak {
  std::string name;
  double before = 0, after = 0;
};
// Levels that are above what they were; one that is gone is a leak too (after: NaN).
std::vector<Leak> leaks_between(const std::vector<ServerLevel>& before, const std::vector<ServerLevel>& after);
// Asks again and again until nothing is above `before`, at most for `wait_s` (and a second for an answer). What is left
// then. Error{runtime} with what was answered when /metrics, which was there before, is not any more.
std::vector<Leak> wait_for_levels(const LoadTarget& target, const std::vector<ServerLevel>& before, double wait_s);
std::string leaks_text(const std::vector<Leak>& leaks);

}  // namespace rw
