#include "libcore/bench/load/load_repeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/check.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

using Results = std::vector<LoadResult>;

// Repeats in which it is not known (nothing ended well) say nothing.
template <typename Of>
double median_over(const Results& results, const Of& of) {
  std::vector<double> values;
  for (const LoadResult& r : results)
    if (const double v = of(r); !std::isnan(v)) values.push_back(v);
  return quantile_of(values, 0.5);
}

LatencySummary combined(const Results& results, LatencySummary LoadSummary::*which) {
  LatencySummary all;
  for (const LoadResult& r : results) all.n += (r.summary.*which).n;
  for (double LatencySummary::*value :
       {&LatencySummary::mean, &LatencySummary::median, &LatencySummary::std, &LatencySummary::p50,
        &LatencySummary::p90, &LatencySummary::p95, &LatencySummary::p99, &LatencySummary::max})
    all.*value = median_over(results, [&](const LoadResult& r) { return r.summary.*which.*value; });
  return all;
}

void add_counts(LoadSummary& all, const LoadSummary& one) {
  for (int64_t LoadSummary::*count : {&LoadSummary::requests, &LoadSummary::completed, &LoadSummary::disconnected,
                                      &LoadSummary::failed, &LoadSummary::input_tokens, &LoadSummary::output_tokens})
    all.*count += one.*count;
  all.duration_s += one.duration_s;
  for (size_t i = 0; i < one.ends.size(); ++i) all.ends[i] += one.ends[i];
  if (one.cached_tokens >= 0) all.cached_tokens = std::max<int64_t>(all.cached_tokens, 0) + one.cached_tokens;
  all.input_known = all.input_known && one.input_known;
  all.tokens_exact = all.tokens_exact && one.tokens_exact;
  all.max_concurrent = std::max(all.max_concurrent, one.max_concurrent);
}

LoadSummary combined(const Results& results) {
  LoadSummary all;
  all.ends.assign(results.front().summary.ends.size(), 0);
  for (const LoadResult& r : results) add_counts(all, r.summary);
  for (double LoadSummary::*value :
       {&LoadSummary::request_throughput, &LoadSummary::output_throughput, &LoadSummary::total_token_throughput,
        &LoadSummary::goodput, &LoadSummary::attainment, &LoadSummary::retry_rate, &LoadSummary::reject_rate,
        &LoadSummary::mean_concurrent})
    all.*value = median_over(results, [&](const LoadResult& r) { return r.summary.*value; });
  for (LatencySummary LoadSummary::*which :
       {&LoadSummary::ttft, &LoadSummary::ttft_sent, &LoadSummary::itl, &LoadSummary::itl_token, &LoadSummary::tpot,
        &LoadSummary::e2e, &LoadSummary::e2e_sent, &LoadSummary::client_late, &LoadSummary::queue,
        &LoadSummary::prefill, &LoadSummary::decode, &LoadSummary::network})
    all.*which = combined(results, which);
  return all;
}

ClientHealth worst(const Results& results) {
  ClientHealth all = results.front().health;
  for (const LoadResult& r : results) {
    for (double ClientHealth::*value :
         {&ClientHealth::late_p99_ms, &ClientHealth::cpu_share, &ClientHealth::others_share})
      if (!(all.*value >= r.health.*value)) all.*value = std::isnan(r.health.*value) ? all.*value : r.health.*value;
    if (!all.is_void && r.health.is_void) {
      all.is_void = true;
      all.why = r.health.why;
    }
  }
  return all;
}

std::string ms_text(double ms) {
  if (std::isnan(ms)) return "-";
  return fmt::format("{:.{}f}", ms, std::abs(ms) < 10 ? 2 : std::abs(ms) < 1000 ? 1 : 0);
}

}  // namespace

LoadResult combine_repeats(const Results& results) {
  CHECK(!results.empty(), "no repeat");
  LoadResult all;
  all.date = results.front().date;
  all.model_id = results.front().model_id;
  all.repeats = static_cast<int64_t>(results.size());
  all.summary = combined(results);
  all.health = worst(results);
  all.curve = results.back().curve;
  all.spans = results.back().spans;
  for (const LoadResult& r : results) {
    all.golden_checked += r.golden_checked;
    all.run.wall_s += r.run.wall_s;
    all.run.client_cpu_s += r.run.client_cpu_s;
    all.run.connections += r.run.connections;
    all.run.outcomes.insert(all.run.outcomes.end(), r.run.outcomes.begin(), r.run.outcomes.end());
  }
  return all;
}

std::string load_repeats_text(const Results& results) {
  std::string out = fmt::format("\n{:<8}{:>11}{:>11}{:>11}{:>11}{:>11}{:>12}{:>9}\n", "repeat", "TTFT p50", "TTFT p99",
                                "ITL p50", "TPOT p50", "E2E p50", "out tok/s", "failed");
  for (size_t i = 0; i < results.size(); ++i) {
    const LoadSummary& s = results[i].summary;
    const ClientHealth& h = results[i].health;
    out += fmt::format("{:<8}{:>11}{:>11}{:>11}{:>11}{:>11}{:>12.1f}{:>9}{}{}\n", i + 1, ms_text(s.ttft.p50),
                       ms_text(s.ttft.p99), ms_text(s.itl_token.p50), ms_text(s.tpot.p50), ms_text(s.e2e.p50),
                       s.output_throughput, s.failed, h.is_void ? "  void" : "",
                       h.is_quiet() ? "" : fmt::format("  not quiet ({:.0f} % others)", 100 * h.others_share));
  }
  return out;
}

}  // namespace rw
