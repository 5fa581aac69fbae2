// Facts of what a server left in --out.
#include <fmt/core.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "libcore/bench/doctor/serving_facts.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr double kFew = 10;

class Adder {
 public:
  Adder(const ServeRecords& records, Facts& facts) : dir_(records.dir.string()), facts_(facts) {}
  // What a running server says is newer.
  void add(const std::string& name, double value, const std::string& text, const char* file) {
    if (!std::isnan(value) && facts_.find(name) == nullptr)
      facts_.set(name, {.value = value, .text = text, .where = dir_ + "/" + file});
  }

 private:
  std::string dir_;
  Facts& facts_;
};

std::string text_of(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_string() ? at->get<std::string>() : "";
}
double number_of(const Json& line, const char* key) {
  const auto at = line.find(key);
  return at != line.end() && at->is_number() ? at->get<double>() : std::nan("");
}

void add_events(const ServeRecords& records, Adder& out) {
  bool alive = false;  // between a start and its end
  double killed = 0, max_model_len = std::nan("");
  std::string killed_at, failure;
  struct Alert {
    double n = 0, worst = 0, above = 0;
  };
  std::map<std::string, Alert> alerts;
  for (const EventRecord& e : records.events) {
    const Json line = Json::parse(e.line, nullptr, false);
    if (!line.is_object()) continue;
    if (e.event == "start") {
      if (alive) {
        ++killed;
        if (killed_at.empty()) killed_at = e.time;
      }
      alive = true;
      failure.clear();  // of a life that is over
      max_model_len = number_of(line, "max_model_len");
    } else if (e.event == "failure") {
      failure = text_of(line, "message");
      if (failure.empty()) failure = "an engine failure without a message";
    } else if (e.event == "end") {
      alive = false;
      if (const double cut = number_of(line, "cut_off"); cut > 0) out.add("drain.cut_off", cut, e.time, "events.jsonl");
    } else if (e.event == "alert" && text_of(line, "state") == "raised") {
      Alert& a = alerts[text_of(line, "name")];
      ++a.n;
      a.above = number_of(line, "above");
      a.worst = std::max(a.worst, number_of(line, "worst"));
    }
  }
  if (!failure.empty())
    out.add(failure.find("rank ") != std::string::npos ? "server.rank_lost" : "server.failed", 1, failure,
            "events.jsonl");
  if (killed > 0) out.add("server.killed", killed, "the next start was at " + killed_at, "events.jsonl");
  for (const auto& [name, a] : alerts)
    out.add("alert." + name, a.n, fmt::format("{:.4g} at worst, above {:.4g}", a.worst, a.above), "events.jsonl");
  const double tokens = static_cast<double>(records.steps.n_pages * records.steps.block_tokens);
  if (tokens > 0)
    out.add("kv.full_length_sequences", tokens / max_model_len,
            fmt::format("{:.0f} tokens of cache, sequences of up to {:.0f}", tokens, max_model_len), "steps.jsonl");
}

void add_sequences(const ServeRecords& records, Adder& out) {
  const std::vector<ServedSequence>& all = records.sequences;
  const double n = static_cast<double>(all.size());
  if (n < kFew) return;
  const auto count = [&](const char* reason) {
    double found = 0;
    for (const ServedSequence& s : all) found += s.finish_reason == reason ? 1 : 0;
    return found;
  };
  const auto share = [&](const char* name, const char* reason) {
    out.add(name, count(reason) / n, fmt::format("{:.0f} of {:.0f} sequences", count(reason), n), "spans.jsonl");
  };
  share("requests.cancelled_share", "abort");
  share("requests.error_share", "error");
  struct Sums {
    double queue = 0, prefill = 0, decode = 0, preempted = 0, tokenize = 0, receive = 0, ttft = 0, lag = 0, done = 0,
           preemptions = 0;
  } sums;
  std::vector<double> lags, tokenize, ttft;
  const auto take = [](double& sum, double v) { sum += std::isnan(v) ? 0 : v; };
  for (const ServedSequence& s : all) {
    if (std::isnan(s.ttft_s)) continue;  // it never had a token
    ++sums.done;
    take(sums.queue, s.queue_s);
    take(sums.prefill, s.prefill_s);
    take(sums.decode, s.decode_s);
    take(sums.preempted, s.preempted_s);
    take(sums.preemptions, s.preemptions);
    take(sums.tokenize, s.tokenize_s);
    take(sums.receive, s.receive_s);
    take(sums.ttft, s.ttft_s);
    take(sums.lag, s.lag_s);
    ttft.push_back(s.ttft_s);
    if (!std::isnan(s.lag_s)) lags.push_back(s.lag_s);
    if (!std::isnan(s.tokenize_s)) tokenize.push_back(s.tokenize_s);
  }
  if (sums.done < kFew) return;
  const double time = sums.ttft + sums.decode;
  const auto of = [&](const char* name, double part, double whole) {
    if (whole > 0) out.add(name, part / whole, fmt::format("{:.0f} sequences", sums.done), "spans.jsonl");
  };
  of("queue.share_of_ttft", sums.queue, sums.queue + sums.prefill);
  of("queue.share_of_time", sums.queue, time);
  of("queue.mean_s", sums.queue, sums.done);
  of("prefill.share_of_time", sums.prefill, time);
  of("decode.share_of_time", sums.decode, time);
  of("kv.preempted_share", sums.preempted, time);
  of("kv.preemptions_per_sequence", sums.preemptions, sums.done);
  of("tokenize.share_of_ttft", sums.tokenize, sums.ttft);
  of("receive.share_of_ttft", sums.receive, sums.ttft);
  of("receive.mean_s", sums.receive, sums.done);
  of("stream.lag_share", sums.lag, time);
  if (!tokenize.empty()) out.add("tokenize.p95_s", quantile_of(tokenize, 0.95), "", "spans.jsonl");
  if (!lags.empty()) out.add("stream.lag_p95_s", quantile_of(lags, 0.95), "", "spans.jsonl");
  out.add("ttft.p50_s", quantile_of(ttft, 0.5), "", "spans.jsonl");
  out.add("ttft.p99_s", quantile_of(ttft, 0.99), "", "spans.jsonl");
}

void add_steps(const ServeRecords& records, Adder& out) {
  const StepFacts& s = records.steps;
  if (s.arrivals < static_cast<int64_t>(kFew)) return;
  const auto add = [&](const char* name, double value, const std::string& text = "") {
    out.add(name, value, text, "steps.jsonl");
  };
  add("prefix.shared_share", s.shared_share, fmt::format("of {} prompts", s.arrivals));
  add("prefix.found_share", s.cached_share);
  add("prefix.missed_share", s.shared_share - s.cached_share);
  if (!s.prefix_cache) add("prefix.off", 1, "prefix_cache is false");
  if (s.stampede > 1) add("prefix.stampede", static_cast<double>(s.stampede));
  add("step.slowdown", s.slowdown);
  add("step.decode_s", s.decode_step_s);
  add("queue.max_seqs", static_cast<double>(s.max_seqs));
  add("step.stalled_share", s.stalled_share);
  add("step.stall_s", s.stall_s);
  if (s.itl_budget_s > 0) add("step.itl_budget_s", s.itl_budget_s);
}

}  // namespace

void add_record_facts(const ServeRecords& records, Facts& facts) {
  Adder out(records, facts);
  add_events(records, out);
  add_sequences(records, out);
  add_steps(records, out);
}

}  // namespace rw
