#include "libcore/plan/serve/serve_stats.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/base/check.h"

namespace rw {
namespace {

// A request as its user saw it.
struct Seen {
  bool refused = false;
  double ttft_s = 0, e2e_s = 0, worst_gap_s = 0, mean_gap_s = 0;
};

Seen seen_whole(const SimRequest& r) {
  return {.refused = r.refused,
          .ttft_s = r.first_gap_s(),
          .e2e_s = r.last_s - r.since_s,
          .worst_gap_s = r.worst_gap_s,
          .mean_gap_s = r.mean_gap_s()};
}

// The decode server counts from the first token on.
Seen seen_split(const SimRequest& p, const SimRequest& d) {
  return {.refused = p.refused || d.refused,
          .ttft_s = p.first_gap_s(),
          .e2e_s = p.first_gap_s() + d.last_s - d.since_s,
          .worst_gap_s = d.worst_gap_s,
          .mean_gap_s = d.mean_gap_s()};
}

struct Tally {
  std::vector<Seen> seen;
  std::vector<float>* gaps;
  const ServeObjective& objective;
};

ServeStats tally(Tally t) {
  ServeStats s{.requests = static_cast<int64_t>(t.seen.size())};
  std::vector<float> ttft, e2e, itl;
  for (std::vector<float>* values : {&ttft, &e2e, &itl}) values->reserve(t.seen.size());
  int64_t kept = 0, kept_ttft = 0, kept_itl = 0;
  const bool worst = t.objective.gap == ServeObjective::Gap::worst;
  for (const Seen& r : t.seen) {
    if (r.refused) {
      ++s.refused;
      continue;
    }
    const double gap = worst ? r.worst_gap_s : r.mean_gap_s;
    ttft.push_back(static_cast<float>(r.ttft_s));
    e2e.push_back(static_cast<float>(r.e2e_s));
    itl.push_back(static_cast<float>(gap));
    const bool in_ttft = r.ttft_s <= t.objective.ttft_s, in_itl = gap <= t.objective.itl_s;
    kept_ttft += in_ttft;
    kept_itl += in_itl;
    kept += in_ttft && in_itl;
  }
  const auto n = static_cast<double>(std::max<int64_t>(s.requests, 1));
  s.attainment = static_cast<double>(kept) / n;
  s.ttft_attainment = static_cast<double>(kept_ttft) / n;
  s.itl_attainment = static_cast<double>(kept_itl) / n;
  s.ttft_kept_s = quantile(ttft, t.objective.attainment);
  s.itl_kept_s = quantile(itl, t.objective.attainment);
  s.ttft_s = percentiles(ttft);
  s.e2e_s = percentiles(e2e);
  s.itl_s = percentiles(*t.gaps);
  return s;
}

void add_rates(ServeStats& s, const SimResult& run, double replicas, int64_t tokens) {
  const double span = run.end_s - run.begin_s;
  if (!(span > 0)) return;
  s.requests_per_s = replicas * static_cast<double>(s.requests - s.refused) / span;
  s.goodput = replicas * s.attainment * static_cast<double>(s.requests) / span;
  s.output_tokens_per_s = replicas * static_cast<double>(tokens) / span;
  s.busy = run.busy_s / span;
}

void add_server(ServeStats& s, const SimResult& run) {
  s.mean_waiting = run.mean_waiting;
  s.most_waiting = run.most_waiting;
  s.mean_kv_usage = run.mean_kv_usage;
  s.most_kv_usage = run.most_kv_usage;
  s.preemptions = run.preemptions;
  s.steps = run.steps;
}

double hit_rate(const SimResult& run) {
  return run.prefix_queries > 0 ? static_cast<double>(run.prefix_hits) / static_cast<double>(run.prefix_queries) : 0;
}

Json percentiles_json(const Percentiles& p) { return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}}; }

}  // namespace

double quantile(std::vector<float>& values, double share) {
  if (values.empty()) return 0;
  const auto n = static_cast<double>(values.size());
  const double rank = std::clamp(std::ceil(share * n - 1e-9), 1.0, n);
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank) - 1;
  std::nth_element(values.begin(), at, values.end());
  return static_cast<double>(*at);
}

Percentiles percentiles(std::vector<float>& values) {
  return {.p50 = quantile(values, 0.5), .p90 = quantile(values, 0.9), .p99 = quantile(values, 0.99)};
}

ServeStats serve_stats(SimResult& run, const ServeObjective& objective, double replicas) {
  Tally t{.seen = {}, .gaps = &run.gaps_s, .objective = objective};
  t.seen.reserve(run.requests.size());
  for (const SimRequest& r : run.requests) t.seen.push_back(seen_whole(r));
  ServeStats s = tally(std::move(t));
  add_rates(s, run, replicas, run.tokens);
  add_server(s, run);
  s.prefix_hit_rate = hit_rate(run);
  return s;
}

ServeStats serve_stats(const SplitRun& run, const ServeObjective& objective) {
  CHECK(run.prefill.requests.size() == run.decode.requests.size(), "%zu prompts and %zu answers",
        run.prefill.requests.size(), run.decode.requests.size());
  Tally t{.seen = {}, .gaps = &run.decode.gaps_s, .objective = objective};
  t.seen.reserve(run.prefill.requests.size());
  for (size_t i = 0; i < run.prefill.requests.size(); ++i)
    t.seen.push_back(seen_split(run.prefill.requests[i], run.decode.requests[i]));
  ServeStats s = tally(std::move(t));
  add_rates(s, run.decode, run.decode_replicas, run.prefill.tokens + run.decode.tokens);
  add_server(s, run.decode);
  s.preemptions += run.prefill.preemptions;
  s.prefix_hit_rate = hit_rate(run.prefill);
  return s;
}

Json serve_stats_json(const ServeStats& s) {
  return {{"requests", s.requests},
          {"refused", s.refused},
          {"ttft_s", percentiles_json(s.ttft_s)},
          {"itl_s", percentiles_json(s.itl_s)},
          {"e2e_s", percentiles_json(s.e2e_s)},
          {"attainment", s.attainment},
          {"ttft_attainment", s.ttft_attainment},
          {"itl_attainment", s.itl_attainment},
          {"ttft_kept_s", s.ttft_kept_s},
          {"itl_kept_s", s.itl_kept_s},
          {"requests_per_s", s.requests_per_s},
          {"goodput", s.goodput},
          {"output_tokens_per_s", s.output_tokens_per_s},
          {"mean_waiting", s.mean_waiting},
          {"most_waiting", s.most_waiting},
          {"mean_kv_usage", s.mean_kv_usage},
          {"most_kv_usage", s.most_kv_usage},
          {"busy", s.busy},
          {"preemptions", s.preemptions},
          {"steps", s.steps},
          {"prefix_hit_rate", s.prefix_hit_rate}};
}

}  // namespace rw
