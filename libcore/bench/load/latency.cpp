#include "libcore/bench/load/latency.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libcore/base/error.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

bool is_ok(const LoadOutcome& o) { return o.end == LoadEnd::ok; }
bool has_text(const LoadOutcome& o) { return !o.chunks.empty(); }
double ttft_ms(const LoadOutcome& o, double from_s) { return 1e3 * (o.chunks.front().at_s - from_s); }
double tpot_ms(const LoadOutcome& o) {
  return 1e3 * (o.end_s - o.chunks.front().at_s) / static_cast<double>(o.output_tokens - 1);
}

struct Times {
  std::vector<double> ttft, ttft_sent, itl, itl_token, tpot, e2e, e2e_sent, client_late, queue, prefill, decode,
      network;
};

void append(std::vector<double>& to, const std::vector<double>& values) {
  to.insert(to.end(), values.begin(), values.end());
}

void add_known(std::vector<double>& to, double seconds) {
  if (seconds >= 0) to.push_back(1e3 * seconds);
}

void add_times(Times& t, const LoadOutcome& o) {
  t.e2e.push_back(1e3 * (o.end_s - o.due_s));
  t.e2e_sent.push_back(1e3 * (o.end_s - o.sent_s));
  add_known(t.queue, o.queue_s);
  add_known(t.prefill, o.prefill_s);
  add_known(t.decode, o.decode_s);
  if (o.server_total_s >= 0) t.network.push_back(1e3 * (o.end_s - o.sent_s - o.server_total_s));
  if (!has_text(o)) return;
  t.ttft.push_back(ttft_ms(o, o.due_s));
  t.ttft_sent.push_back(ttft_ms(o, o.sent_s));
  append(t.itl, chunk_gaps_ms(o));
  append(t.itl_token, token_gaps_ms(o));
  if (o.output_tokens > 1) t.tpot.push_back(tpot_ms(o));
}

struct Span {
  double first_due = 0, last_end = 0;
};
Span span_of(const LoadRun& run) {
  Span s{std::numeric_limits<double>::infinity(), 0};
  for (const LoadOutcome& o : run.outcomes) {
    s.first_due = std::min(s.first_due, o.due_s);
    s.last_end = std::max(s.last_end, o.end_s);
  }
  return s;
}

int64_t most_at_once(const LoadRun& run) {
  std::vector<std::pair<double, int>> turns;  // ends before starts of the same moment
  for (const LoadOutcome& o : run.outcomes)
    if (o.end_s > o.sent_s) {
      turns.emplace_back(o.sent_s, 1);
      turns.emplace_back(o.end_s, -1);
    }
  std::sort(turns.begin(), turns.end());
  int64_t now = 0, most = 0;
  for (const auto& [at, change] : turns) most = std::max(most, now += change);
  return most;
}

double per_second(double amount, double seconds) { return seconds > 0 ? amount / seconds : kNothing; }

}  // namespace

LatencySummary summarize_ms(const std::vector<double>& values) {
  LatencySummary s{.n = static_cast<int64_t>(values.size())};
  if (values.empty()) {
    s.mean = s.median = s.std = s.p50 = s.p90 = s.p95 = s.p99 = s.max = kNothing;
    return s;
  }
  std::vector<double> sorted = values;
  std::sort(sorted.begin(), sorted.end());
  s.mean = mean_of(sorted);
  double squares = 0;
  for (const double v : sorted) squares += (v - s.mean) * (v - s.mean);
  s.std = std::sqrt(squares / static_cast<double>(sorted.size()));
  s.median = s.p50 = quantile_of(sorted, 0.5);
  s.p90 = quantile_of(sorted, 0.9);
  s.p95 = quantile_of(sorted, 0.95);
  s.p99 = quantile_of(sorted, 0.99);
  s.max = sorted.back();
  return s;
}

std::vector<double> chunk_gaps_ms(const LoadOutcome& o) {
  std::vector<double> gaps;
  for (size_t i = 1; i < o.chunks.size(); ++i) gaps.push_back(1e3 * (o.chunks[i].at_s - o.chunks[i - 1].at_s));
  return gaps;
}

std::vector<double> token_gaps_ms(const LoadOutcome& o) {
  std::vector<double> gaps;
  for (size_t i = 0; i < o.chunks.size(); ++i) {
    const int64_t k = o.chunks[i].tokens;
    if (i == 0 && k > 1) gaps.insert(gaps.end(), static_cast<size_t>(k - 1), 0.0);
    if (i > 0 && k > 0)
      gaps.insert(gaps.end(), static_cast<size_t>(k),
                  1e3 * (o.chunks[i].at_s - o.chunks[i - 1].at_s) / static_cast<double>(k));
  }
  return gaps;
}

bool keeps(const LoadOutcome& o, const LoadObjective& objective) {
  if (!is_ok(o)) return false;
  const auto within = [](double value, double limit) { return limit <= 0 || value <= limit; };
  if (!within(1e3 * (o.end_s - o.due_s), objective.e2e_ms)) return false;
  if (!has_text(o)) return objective.ttft_ms <= 0;
  if (!within(ttft_ms(o, o.due_s), objective.ttft_ms)) return false;
  if (o.output_tokens > 1 && !within(tpot_ms(o), objective.tpot_ms)) return false;
  const std::vector<double> gaps = token_gaps_ms(o);
  return gaps.empty() || within(*std::max_element(gaps.begin(), gaps.end()), objective.itl_ms);
}

LoadSummary summarize_load(const LoadRun& run, const LoadObjective& objective) {
  LoadSummary s;
  s.ends.assign(static_cast<size_t>(LoadEnd::n_ends), 0);
  s.requests = static_cast<int64_t>(run.outcomes.size());
  const Span span = span_of(run);
  s.duration_s = run.outcomes.empty() ? 0 : span.last_end - span.first_due;
  Times t;
  int64_t good = 0, retries = 0;
  double busy_s = 0;
  for (const LoadOutcome& o : run.outcomes) {
    ++s.ends[static_cast<size_t>(o.end)];
    retries += o.retries;
    busy_s += std::max(0.0, o.end_s - o.sent_s);
    t.client_late.push_back(1e3 * (o.sent_s - o.due_s));
    if (o.end == LoadEnd::disconnected) ++s.disconnected;
    if (!is_ok(o)) continue;
    ++s.completed;
    s.input_tokens += o.prompt_tokens;
    if (!o.prompt_known) s.input_known = false;
    s.output_tokens += o.output_tokens;
    if (o.cached_tokens >= 0) s.cached_tokens = std::max<int64_t>(s.cached_tokens, 0) + o.cached_tokens;
    if (!o.tokens_exact) s.tokens_exact = false;
    if (keeps(o, objective)) ++good;
    add_times(t, o);
  }
  s.failed = s.requests - s.completed - s.disconnected;
  s.request_throughput = per_second(static_cast<double>(s.completed), s.duration_s);
  s.output_throughput = per_second(static_cast<double>(s.output_tokens), s.duration_s);
  s.total_token_throughput =
      s.input_known ? per_second(static_cast<double>(s.input_tokens + s.output_tokens), s.duration_s) : kNothing;
  s.goodput = per_second(static_cast<double>(good), s.duration_s);
  const int64_t asked = s.requests - s.disconnected;
  s.attainment = asked > 0 ? static_cast<double>(good) / static_cast<double>(asked) : kNothing;
  const auto n = static_cast<double>(s.requests);
  s.retry_rate = s.requests > 0 ? static_cast<double>(retries) / n : kNothing;
  s.reject_rate = s.requests > 0 ? static_cast<double>(s.ends[static_cast<size_t>(LoadEnd::refused_429)] +
                                                       s.ends[static_cast<size_t>(LoadEnd::refused_503)]) /
                                       n
                                 : kNothing;
  s.max_concurrent = most_at_once(run);
  s.mean_concurrent = per_second(busy_s, s.duration_s);
  s.ttft = summarize_ms(t.ttft);
  s.ttft_sent = summarize_ms(t.ttft_sent);
  s.itl = summarize_ms(t.itl);
  s.itl_token = summarize_ms(t.itl_token);
  s.tpot = summarize_ms(t.tpot);
  s.e2e = summarize_ms(t.e2e);
  s.e2e_sent = summarize_ms(t.e2e_sent);
  s.client_late = summarize_ms(t.client_late);
  s.queue = summarize_ms(t.queue);
  s.prefill = summarize_ms(t.prefill);
  s.decode = summarize_ms(t.decode);
  s.network = summarize_ms(t.network);
  return s;
}

std::vector<ConcurrencyPoint> concurrency_curve(const LoadRun& run, int64_t points) {
  std::vector<ConcurrencyPoint> curve;
  if (run.outcomes.empty() || points < 1) return curve;
  const Span span = span_of(run);
  const double step = (span.last_end - span.first_due) / static_cast<double>(points);
  if (!(step > 0)) return curve;
  std::vector<int64_t> change(static_cast<size_t>(points) + 1, 0), tokens(static_cast<size_t>(points), 0);
  // The first middle of a step at or after a moment.
  const auto middle_after = [&](double at) {
    return static_cast<size_t>(
        std::clamp(std::ceil((at - span.first_due) / step - 0.5), 0.0, static_cast<double>(points)));
  };
  for (const LoadOutcome& o : run.outcomes) {
    if (o.end_s > o.sent_s) {
      ++change[middle_after(o.sent_s)];
      --change[middle_after(o.end_s)];
    }
    for (const LoadChunk& c : o.chunks) {
      const double at = std::floor((c.at_s - span.first_due) / step);
      tokens[static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(points - 1)))] += c.tokens;
    }
  }
  int64_t running = 0;
  for (int64_t i = 0; i < points; ++i) {
    const auto at = static_cast<size_t>(i);
    running += change[at];
    curve.push_back({.at_s = span.first_due + (static_cast<double>(i) + 0.5) * step,
                     .running = running,
                     .output_tokens_per_s = static_cast<double>(tokens[at]) / step});
  }
  return curve;
}

namespace {

// Why requests went out late.
std::string lateness_text(const ClientHealth& h) {
  constexpr double kHardlyRan = 0.5;
  if (!h.is_quiet())
    return fmt::format(
        "other processes took {:.0f} % of this machine's CPU time and the client ({:.0f} % of a core) had to wait for "
        "its turn; measure on a quiet machine",
        100 * h.others_share, 100 * h.cpu_share);
  if (h.cpu_share < kHardlyRan)
    return fmt::format(
        "the client used {:.0f} % of a core only, so that it was kept waiting for one, by the server if that runs on "
        "this host; give the client a core or a machine of its own",
        100 * h.cpu_share);
  return "the client, not the server, was slow; lower the rate, or give the client a machine of its own";
}

}  // namespace

ClientHealth client_health(const LoadRun& run, bool open_loop, double others_share) {
  ClientHealth h;
  h.others_share = others_share;
  std::vector<double> late;
  for (const LoadOutcome& o : run.outcomes) late.push_back(1e3 * (o.sent_s - o.due_s));
  h.late_p99_ms = open_loop ? quantile_of(late, 0.99) : kNothing;
  h.cpu_share = run.wall_s > 0 ? run.client_cpu_s / run.wall_s : kNothing;
  if (h.late_p99_ms > kLateMs)
    h.why = fmt::format("1 % of the requests went out more than {:.1f} ms late ({:.0f} are allowed): {}", h.late_p99_ms,
                        kLateMs, lateness_text(h));
  if (h.cpu_share > kFullCore)
    h.why += fmt::format(
        "{}the client used {:.0f} % of its core: what it saw came late; lower the rate, or share the "
        "load among several clients",
        h.why.empty() ? "" : "; ", 100 * h.cpu_share);
  h.is_void = !h.why.empty();
  return h;
}

}  // namespace rw
