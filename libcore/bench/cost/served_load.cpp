// How much was served, and how well, from a load generator's record or a server's own files.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/cost/cost.h"
#include "libcore/bench/record/json_line_file.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr double kQueuedMs = 1;  // a wait below this is the engine's tick, not a queue

// A number under `key` in `json` or in an object in it; NaN when there is none.
double find_number(const Json& json, const char* key) {
  if (!json.is_object()) return kNone;
  if (const auto at = json.find(key); at != json.end() && at->is_number()) return at->get<double>();
  for (const auto& [name, value] : json.items())
    if (value.is_object())
      if (const double v = find_number(value, key); std::isfinite(v)) return v;
  return kNone;
}

double number(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : 0;
}

struct SpanSums {
  ServedLoad load;
  std::vector<double> queue_ms;
  int64_t queued = 0;

  void add(const Json& line) {
    ++load.requests;
    load.input_tokens += number(line, "prompt_tokens");
    load.output_tokens += number(line, "completion_tokens");
    const auto reason = line.find("finish_reason");
    if (reason != line.end() && reason->is_string() && (*reason == "error" || *reason == "abort")) ++load.failed;
    const auto spans = line.find("spans");
    if (spans == line.end() || !spans->is_array()) return;
    for (const Json& span : *spans) {
      if (!span.is_object() || span.value("name", Json()) != "queue") continue;
      const double waited = number(span, "end_ms") - number(span, "start_ms");
      queue_ms.push_back(waited);
      queued += waited > kQueuedMs ? 1 : 0;
    }
  }
};

}  // namespace

ServedLoad served_load(const BenchRecord& record) {
  if (record.bench != "serve")
    fail(ErrorKind::input, "expected a record of dbench serve, found one of dbench {} (\"{}\")", record.bench,
         record.name);
  const Json details = parse_json(record.details, "the record's details");
  const auto first_of = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (const double v = find_number(details, key); std::isfinite(v)) return v;
    return kNone;
  };
  ServedLoad load;
  load.source = record.name;
  load.duration_s = first_of({"duration"});
  load.input_tokens = first_of({"total_input_tokens"});
  load.output_tokens = first_of({"total_output_tokens"});
  if (!(load.duration_s > 0) || !std::isfinite(load.output_tokens))
    fail(ErrorKind::input,
         "record \"{}\": expected \"duration\" above 0 and \"total_output_tokens\" in its details, found {} and {}",
         record.name, load.duration_s, load.output_tokens);
  if (!std::isfinite(load.input_tokens)) {
    load.input_tokens = 0;
    load.notes.push_back("input tokens are not recorded: counted as 0");
  }
  const double completed = first_of({"completed"}), failed = first_of({"failed"});
  load.failed = std::isfinite(failed) ? static_cast<int64_t>(failed) : 0;
  load.requests = (std::isfinite(completed) ? static_cast<int64_t>(completed) : 0) + load.failed;
  load.attainment = first_of({"slo_attainment", "attainment"});
  load.retry_rate = first_of({"retry_rate"});
  load.reject_rate = first_of({"reject_rate"});
  load.queue_p50_ms = first_of({"p50_queue_ms", "median_queue_ms"});
  load.queue_p99_ms = first_of({"p99_queue_ms"});
  load.queued_share = first_of({"queued_share", "queue_rate"});
  return load;
}

ServedLoad served_load(const std::filesystem::path& out) {
  const std::filesystem::path spans = out / "spans.jsonl", steps = out / "steps.jsonl";
  if (!std::filesystem::is_regular_file(spans))
    fail(ErrorKind::input, "{}: expected spans.jsonl of dserve --out with --log-spans, found none", out.string());
  SpanSums sums;
  int64_t torn = for_each_json_line(spans, [&](const Json& line, const std::string&) { sums.add(line); });
  ServedLoad load = sums.load;
  load.source = out.string();
  torn += for_each_json_line(steps,
                             [&](const Json& line, const std::string&) { load.duration_s += number(line, "seconds"); });
  if (!(load.duration_s > 0))
    fail(ErrorKind::input,
         "{}: expected steps of the engine with their \"seconds\" (dserve --log-steps), found none: how long it worked "
         "is "
         "not known",
         steps.string());
  load.attainment = load.retry_rate = load.reject_rate = kNone;
  load.queued_share =
      sums.queue_ms.empty() ? kNone : static_cast<double>(sums.queued) / static_cast<double>(sums.queue_ms.size());
  load.queue_p50_ms = quantile_of(sums.queue_ms, 0.5);
  load.queue_p99_ms = quantile_of(sums.queue_ms, 0.99);
  load.notes.push_back("time is the engine's busy time: idle hours are not in it");
  load.notes.push_back("objectives, retries and refusals are the client's to see: give a dbench serve record for them");
  if (torn > 0) load.notes.push_back(fmt::format("{} lines were cut off", torn));
  return load;
}

}  // namespace rw
