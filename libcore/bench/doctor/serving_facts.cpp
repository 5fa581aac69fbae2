#include "libcore/bench/doctor/serving_facts.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/bench/doctor/serving_facts_series.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr double kFew = 10;         // of fewer a share says nothing
constexpr double kStallFactor = 5;  // a gap that is seen beside the usual ones
constexpr double kFullUsage = 0.95;

const SeriesNames kRunning = {"rankwright_sequences_running", "vllm:num_requests_running"};
const SeriesNames kWaiting = {"rankwright_sequences_waiting", "vllm:num_requests_waiting"};
const SeriesNames kUsage = {"rankwright_kv_usage_ratio", "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"};
const SeriesNames kPromptTokens = {"rankwright_prompt_tokens_total", "vllm:prompt_tokens_total"};
const SeriesNames kGenerated = {"rankwright_generation_tokens_total", "vllm:generation_tokens_total"};
const SeriesNames kQueries = {"rankwright_prefix_cache_queries_total", "vllm:prefix_cache_queries_total",
                              "vllm:gpu_prefix_cache_queries_total"};
const SeriesNames kHits = {"rankwright_prefix_cache_hits_total", "vllm:prefix_cache_hits_total",
                           "vllm:gpu_prefix_cache_hits_total"};
const SeriesNames kPreemptions = {"rankwright_preemptions_total", "vllm:num_preemptions_total"};
const SeriesNames kFinished = {"rankwright_sequences_finished_total", "vllm:request_success_total"};
const SeriesNames kTtft = {"rankwright_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"};
const SeriesNames kItl = {"rankwright_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
                          "vllm:time_per_output_token_seconds"};
const SeriesNames kE2e = {"rankwright_request_latency_seconds", "vllm:e2e_request_latency_seconds"};
const SeriesNames kQueue = {"rankwright_request_queue_seconds", "vllm:request_queue_time_seconds"};
const SeriesNames kPrefill = {"rankwright_request_prefill_seconds", "vllm:request_prefill_time_seconds"};
const SeriesNames kDecode = {"rankwright_request_decode_seconds", "vllm:request_decode_time_seconds"};
const SeriesNames kPreempted = {"rankwright_request_preempted_seconds"};
const SeriesNames kPromptLengths = {"rankwright_request_prompt_tokens", "vllm:request_prompt_tokens"};

// Of several servers. A value that none has is NaN.
class Fleet {
 public:
  Fleet(const std::vector<ServerWatch>& servers, Facts& facts) : facts_(facts) {
    for (const ServerWatch& s : servers)
      if (s.looks.size() >= 2) {
        series_.emplace_back(s);
        watches_.push_back(&s);
      }
    if (watches_.empty()) return;
    names_ = watches_.size() == 1 ? watches_[0]->url : fmt::format("{} servers", watches_.size());
    window_s_ = watches_[0]->looks.back().at_s - watches_[0]->looks.front().at_s;
  }
  bool empty() const { return watches_.empty(); }
  const std::vector<ServerSeries>& series() const { return series_; }
  const std::vector<const ServerWatch*>& watches() const { return watches_; }
  double window_s() const { return window_s_; }

  void set(const std::string& name, double value, const std::string& text = "") {
    set_from(name, value, text, window());
  }
  void set_from(const std::string& name, double value, const std::string& text, const std::string& where) {
    if (!std::isnan(value)) facts_.set(name, {.value = value, .text = text, .where = where});
  }
  std::string window() const { return fmt::format("{}, {:.1f} s", names_, window_s_); }
  std::string since_start() const { return names_ + ", since the start"; }

  // Of the window, or since the start.
  double count(const SeriesNames& names, bool in_window, const std::vector<ServerSeries::Label>& labels = {}) const {
    double sum = kUnknown;
    for (const ServerSeries& s : series_) {
      const double last = s.at(s.n_looks() - 1, names, labels);
      if (std::isnan(last)) continue;
      const double first = in_window ? s.at(0, names, labels) : 0;
      // A server that was started anew counts from nothing.
      sum = (std::isnan(sum) ? 0 : sum) + (last < first ? last : last - first);
    }
    return sum;
  }
  BucketCounts histogram(const SeriesNames& names, bool in_window) const {
    std::map<double, double> upper;
    BucketCounts all;
    for (const ServerSeries& s : series_) {
      const BucketCounts last = s.histogram(s.n_looks() - 1, names), first = s.histogram(0, names);
      const double less = in_window && first.count <= last.count ? 1 : 0;
      all.sum += last.sum - less * first.sum;
      all.count += last.count - less * first.count;
      for (const auto& [bound, n] : last.upper) upper[bound] += n;
      if (less > 0)
        for (const auto& [bound, n] : first.upper) upper[bound] -= n;
    }
    all.upper.assign(upper.begin(), upper.end());
    return all;
  }
  // The window's where enough happened in it, else the start's; `in_window` says which.
  struct Basis {
    bool enough, in_window;
  };
  Basis basis(double in_window, double since_start) const {
    return {.enough = in_window >= kFew || since_start >= kFew, .in_window = in_window >= kFew};
  }
  std::string where(const Basis& b) const { return b.in_window ? window() : since_start(); }

 private:
  Facts& facts_;
  std::vector<ServerSeries> series_;
  std::vector<const ServerWatch*> watches_;
  std::string names_;
  double window_s_ = 0;
};

// A histogram's sum over another's, of the same sequences.
double ratio(double part, double whole) { return whole > 0 ? part / whole : kUnknown; }

void add_health(const std::vector<ServerWatch>& servers, Facts& facts) {
  const auto add = [&](const std::string& name, const ServerWatch& s, const std::string& text) {
    const Fact* before = facts.find(name);
    Fact fact{.value = 1, .text = s.url + ": " + text, .where = s.url + "/health"};
    if (before != nullptr) {
      fact.value += before->value;
      fact.text = before->text + "; " + fact.text;
    }
    facts.set(name, fact);
  };
  for (const ServerWatch& s : servers) {
    if (!s.error.empty()) add("replicas.down", s, s.error);
    if (s.health_status < 500) continue;
    const std::string said = s.health_message.empty() ? s.health_state : s.health_message;
    if (s.health_state == "failed")
      add(said.find("rank ") != std::string::npos ? "server.rank_lost" : "server.failed", s, said);
    else if (s.health_state == "stalled") add("server.stalled", s, said);
    else if (s.health_state == "loading" || s.health_state == "draining") add("server." + s.health_state, s, said);
    else add("server.unhealthy", s, fmt::format("/health says {} {}", s.health_status, said));
  }
}

void add_http(Fleet& fleet) {
  // By status, of the routes that are work.
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> by;  // (window, start)
  for (const ServerWatch* w : fleet.watches())
    for (const bool first : {true, false})
      for (const MetricSample& s : (first ? w->looks.front() : w->looks.back()).samples) {
        if (s.name != "rankwright_http_requests_total") continue;
        const auto route = s.labels.find("route"), status = s.labels.find("status");
        if (route == s.labels.end() || status == s.labels.end() || status->second.size() != 3) continue;
        if (!route->second.starts_with("/v1/") && route->second != "/*") continue;
        auto& [window, start] = by[{status->second, route->second}];
        window += first ? -s.value : s.value;
        if (!first) start += s.value;
      }
  double window = 0, start = 0;
  for (const auto& [key, n] : by) {
    window += n.first;
    start += n.second;
  }
  const Fleet::Basis basis = fleet.basis(window, start);
  if (!basis.enough) return;
  const double all = basis.in_window ? window : start;
  const auto add = [&](const char* name, auto&& is) {
    double n = 0, most = 0;
    std::string text;
    for (const auto& [key, counts] : by) {
      const double value = basis.in_window ? counts.first : counts.second;
      if (!is(key.first) || value <= 0) continue;
      n += value;
      if (value <= most) continue;
      most = value;
      text = fmt::format("status {} on {}: {:.0f} of {:.0f} requests", key.first, key.second, value, all);
    }
    fleet.set_from(name, n / all, text, fleet.where(basis));
  };
  add("http.refused_share",
      [](const std::string& s) { return s[0] == '4' && s != "429" && s != "401" && s != "403" && s != "499"; });
  add("http.unauthorized_share", [](const std::string& s) { return s == "401" || s == "403"; });
  add("http.failed_share", [](const std::string& s) { return s[0] == '5'; });
  add("http.limited_share", [](const std::string& s) { return s == "429"; });
  const double cut = fleet.count({"rankwright_http_cut_off_total"}, basis.in_window);
  fleet.set_from("http.slow_reader_share", cut / all, fmt::format("{:.0f} of {:.0f} requests", cut, all),
                 fleet.where(basis));
}

void add_ends(Fleet& fleet) {
  const Fleet::Basis basis = fleet.basis(fleet.count(kFinished, true), fleet.count(kFinished, false));
  if (basis.enough) {
    const double all = fleet.count(kFinished, basis.in_window);
    for (const auto& [name, reason] :
         {std::pair{"requests.cancelled_share", "abort"}, {"requests.error_share", "error"}}) {
      double n = fleet.count(kFinished, basis.in_window, {{"reason", reason}});
      if (n == 0) n = fleet.count(kFinished, basis.in_window, {{"finished_reason", reason}});
      fleet.set_from(name, n / all, fmt::format("{:.0f} of {:.0f} sequences", n, all), fleet.where(basis));
    }
    const double preemptions = fleet.count(kPreemptions, basis.in_window);
    fleet.set_from("kv.preemptions_per_sequence", preemptions / all,
                   fmt::format("{:.0f} preemptions, {:.0f} sequences", preemptions, all), fleet.where(basis));
  }
  fleet.set("kv.preemptions_per_s", fleet.count(kPreemptions, true) / fleet.window_s());
  const SeriesNames rejected = {"rankwright_requests_rejected_total"},
                    admitted = {"rankwright_requests_admitted_total"};
  for (const auto& [name, reason] : {std::pair{"requests.queue_full_share", "queue_full"},
                                     {"requests.too_slow_share", "too_slow"},
                                     {"requests.too_long_share", "too_long"}}) {
    const auto asked = [&](bool in_window) {
      const double no = fleet.count(rejected, in_window), yes = fleet.count(admitted, in_window);
      return (std::isnan(no) ? 0 : no) + (std::isnan(yes) ? 0 : yes);
    };
    const Fleet::Basis b = fleet.basis(asked(true), asked(false));
    const double n = fleet.count(rejected, b.in_window, {{"reason", reason}});
    if (b.enough)
      fleet.set_from(name, n / asked(b.in_window), fmt::format("{:.0f} of {:.0f} requests", n, asked(b.in_window)),
                     fleet.where(b));
  }
}

// Where the time of finished sequences went.
void add_times(Fleet& fleet) {
  const auto pick = [&](const SeriesNames& names) {
    const BucketCounts window = fleet.histogram(names, true), start = fleet.histogram(names, false);
    const Fleet::Basis b = fleet.basis(window.count, start.count);
    return std::make_pair(b, b.in_window ? window : start);
  };
  const auto [b, queue] = pick(kQueue);
  if (b.enough) {
    const double prefill = fleet.histogram(kPrefill, b.in_window).sum,
                 decode = fleet.histogram(kDecode, b.in_window).sum;
    const double e2e = fleet.histogram(kE2e, b.in_window).sum;
    const std::string where = fleet.where(b);
    fleet.set_from("queue.share_of_ttft", ratio(queue.sum, queue.sum + prefill), "", where);
    fleet.set_from("queue.mean_s", ratio(queue.sum, queue.count), "", where);
    fleet.set_from("queue.share_of_time", ratio(queue.sum, e2e), "", where);
    fleet.set_from("prefill.share_of_time", ratio(prefill, e2e), "", where);
    fleet.set_from("decode.share_of_time", ratio(decode, e2e), "", where);
    if (fleet.histogram(kPreempted, b.in_window).count > 0)
      fleet.set_from("kv.preempted_share", ratio(fleet.histogram(kPreempted, b.in_window).sum, e2e), "", where);
  }
  if (const auto [tb, ttft] = pick(kTtft); tb.enough) {
    fleet.set_from("ttft.p50_s", ttft.quantile(0.5), "", fleet.where(tb));
    fleet.set_from("ttft.p99_s", ttft.quantile(0.99), "", fleet.where(tb));
  }
  if (const auto [pb, prompts] = pick(kPromptLengths); pb.enough)
    fleet.set_from("prompt.p99_tokens", prompts.quantile(0.99), "", fleet.where(pb));
}

void add_gaps(Fleet& fleet) {
  constexpr double kFewGaps = 100;
  const BucketCounts window = fleet.histogram(kItl, true), start = fleet.histogram(kItl, false);
  const bool in_window = window.count >= kFewGaps;
  const BucketCounts& gaps = in_window ? window : start;
  if (gaps.count < kFewGaps) return;
  const std::string where = in_window ? fleet.window() : fleet.since_start();
  const double p50 = gaps.quantile(0.5);
  fleet.set_from("itl.p50_s", p50, "", where);
  fleet.set_from("itl.p99_s", gaps.quantile(0.99), "", where);
  const BucketCounts::Above stalls = gaps.above(kStallFactor * p50);
  fleet.set_from("itl.stalled_share", std::min(1.0, ratio(stalls.sum, gaps.sum)),
                 fmt::format("{:.0f} of {:.0f} gaps", stalls.count, gaps.count), where);
  const double stall_s = stalls.count > 0 ? stalls.sum / stalls.count : kUnknown;
  fleet.set_from("itl.stall_s", stall_s, "", where);
  // What a chunk of prefill costs by the scheduler's own estimate, of the longest prompts that came.
  double chunk_s = kUnknown;
  const BucketCounts prompts =
      fleet.histogram(kPromptLengths, in_window && fleet.histogram(kPromptLengths, true).count > 0);
  for (const ServerSeries& s : fleet.series())
    for (size_t look = 0; look < s.n_looks(); ++look) {
      double tokens = s.at(look, {"rankwright_prefill_chunk_tokens"});
      const double waiting = s.at(look, {"rankwright_waiting_tokens"});
      const double longest = std::max(prompts.quantile(0.99), std::isnan(waiting) ? 0 : waiting);
      if (!std::isnan(longest)) tokens = std::min(tokens, longest);
      const double cost = tokens * s.at(look, {"rankwright_estimated_prefill_seconds_per_token"});
      if (!std::isnan(cost)) chunk_s = std::isnan(chunk_s) ? cost : std::max(chunk_s, cost);
    }
  fleet.set_from("prefill.chunk_s", chunk_s, "", where);
  fleet.set_from("prefill.chunk_over_gap", chunk_s / p50, "", where);
  fleet.set_from("prefill.chunk_over_stall", chunk_s / stall_s, "", where);
}

void add_gauges(Fleet& fleet) {
  double looks = 0, busy = 0, limited = 0, full = 0, waiting_sum = 0, running_sum = 0, usage_max = kUnknown;
  double seats_low = kUnknown, seats_high = kUnknown, worker_s = kUnknown, silent_s = kUnknown;
  const auto raise = [](double& most, double v) {
    if (!std::isnan(v) && !(most >= v)) most = v;
  };
  for (const ServerSeries& s : fleet.series())
    for (size_t look = 0; look < s.n_looks(); ++look) {
      const double running = s.at(look, kRunning), waiting = s.at(look, kWaiting), usage = s.at(look, kUsage);
      if (std::isnan(running) || std::isnan(waiting)) continue;
      ++looks;
      running_sum += running;
      waiting_sum += waiting;
      raise(usage_max, usage);
      raise(worker_s, s.at(look, {"rankwright_http_worker_queue_seconds"}));
      if (running + waiting > 0) raise(silent_s, s.at(look, {"rankwright_engine_heartbeat_age_seconds"}));
      if (waiting <= 0 || running <= 0) continue;
      ++busy;
      // No room for one more of the size of those that run.
      limited += usage > 0.5 && 1 - usage < usage / running ? 1 : 0;
      full += usage > kFullUsage ? 1 : 0;
      raise(seats_high, running);
      if (!(seats_low <= running)) seats_low = running;
    }
  if (looks == 0) return;
  const double servers = static_cast<double>(fleet.series().size());
  fleet.set("queue.waiting", waiting_sum / looks * servers);
  fleet.set("queue.running", running_sum / looks * servers);
  fleet.set("kv.usage", usage_max);
  fleet.set("http.worker_queue_s", worker_s);
  fleet.set("engine.heartbeat_s", silent_s);
  fleet.set("queue.waiting_share", busy / looks);
  if (busy < 3) return;  // of the looks; fewer are a moment
  fleet.set("kv.limited_share", limited / busy);
  fleet.set("kv.full_share", full / busy);
  fleet.set("queue.seats", seats_high);
  fleet.set("queue.seats_spread", (seats_high - seats_low) / seats_high);
}

void add_prefixes(Fleet& fleet) {
  const double prompt = fleet.count(kPromptTokens, false);
  const double queries = fleet.count(kQueries, false), hits = fleet.count(kHits, false);
  constexpr double kFewTokens = 1000;
  if (queries == 0 && prompt >= kFewTokens)
    fleet.set_from("prefix.off", 1, fmt::format("{:.0f} prompt tokens, none asked of the cache", prompt),
                   fleet.since_start());
  const double new_queries = fleet.count(kQueries, true), new_hits = fleet.count(kHits, true);
  const bool in_window = new_queries >= kFewTokens;
  if (!(queries >= kFewTokens)) return;
  fleet.set_from("prefix.hit_share", in_window ? new_hits / new_queries : hits / queries, "",
                 in_window ? fleet.window() : fleet.since_start());
  if (in_window && queries - new_queries >= kFewTokens) {
    const double before = (hits - new_hits) / (queries - new_queries);
    fleet.set_from("prefix.hit_share_before", before, "", "before that");
    fleet.set("prefix.drop", before - new_hits / new_queries);
  }
  fleet.set("prefix.evicted_per_s", fleet.count({"rankwright_kv_evicted_pages_total"}, true) / fleet.window_s());
}

void add_balance(Fleet& fleet) {
  if (fleet.series().size() < 2) return;
  std::vector<double> load, tokens;
  for (const ServerSeries& s : fleet.series()) {
    double sum = 0, n = 0;
    for (size_t look = 0; look < s.n_looks(); ++look) {
      const double both = s.at(look, kRunning) + s.at(look, kWaiting);
      if (std::isnan(both)) continue;
      sum += both;
      ++n;
    }
    load.push_back(n > 0 ? sum / n : 0);
    tokens.push_back(s.at(s.n_looks() - 1, kGenerated) - s.at(0, kGenerated));
  }
  const auto most = std::max_element(load.begin(), load.end());
  double total = 0;
  for (const double l : load) total += l;
  std::string text;
  for (size_t i = 0; i < load.size(); ++i)
    text += fmt::format("{}{}: {:.1f} requests, {:.0f} tokens", i == 0 ? "" : "; ", fleet.watches()[i]->url, load[i],
                        tokens[i]);
  fleet.set("replicas.load", total / static_cast<double>(load.size()));
  if (total > 0) fleet.set("replicas.imbalance", *most * static_cast<double>(load.size()) / total, text);
}

// The cache in sequences of full length, where the server says both.
void add_room(Fleet& fleet, const ServerWatch& w) {
  for (const MetricSample& s : w.looks.back().samples) {
    if (s.name != "vllm:cache_config_info") continue;
    const auto block = s.labels.find("block_size"), blocks = s.labels.find("num_gpu_blocks");
    if (block == s.labels.end() || blocks == s.labels.end()) return;
    const double tokens = std::strtod(block->second.c_str(), nullptr) * std::strtod(blocks->second.c_str(), nullptr);
    if (tokens > 0 && w.max_model_len > 0)
      fleet.set("kv.full_length_sequences", tokens / w.max_model_len,
                fmt::format("{:.0f} tokens of cache, sequences of up to {:.0f}", tokens, w.max_model_len));
    return;
  }
}

void add_memory(Fleet& fleet) {
  const ServerWatch& w = *fleet.watches().front();  // replicas are alike
  add_room(fleet, w);
  const Json memory = Json::parse(w.memory, nullptr, false);
  if (!memory.is_object() || !memory.contains("now") || !memory["now"].is_object()) return;
  for (const auto& [name, key] :
       {std::pair{"memory.kv_bytes", "kv_bytes"}, {"memory.weights_bytes", "weights_bytes"}, {"kv.pages", "pages"}}) {
    const auto at = memory["now"].find(key);
    if (at != memory["now"].end() && at->is_number()) fleet.set(name, at->get<double>());
  }
}

}  // namespace

Facts server_facts(const std::vector<ServerWatch>& servers) {
  Facts facts;
  add_health(servers, facts);
  Fleet fleet(servers, facts);
  if (fleet.empty()) return facts;
  add_http(fleet);
  add_ends(fleet);
  add_times(fleet);
  add_gaps(fleet);
  add_gauges(fleet);
  add_prefixes(fleet);
  add_balance(fleet);
  add_memory(fleet);
  std::vector<double> pings;
  for (const ServerWatch* w : fleet.watches()) pings.insert(pings.end(), w->ping_s.begin(), w->ping_s.end());
  if (!pings.empty()) fleet.set("http.probe_s", quantile_of(pings, 0.5));
  double restarted = 0;
  for (const ServerSeries& s : fleet.series())
    if (s.at(s.n_looks() - 1, kGenerated) < s.at(0, kGenerated)) ++restarted;
  if (restarted > 0) fleet.set("server.restarted", restarted);
  return facts;
}

}  // namespace rw
