#include "libcore/bench/load/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr const char* kDefinitions =
    "TTFT: first chunk with text; E2E: last byte; both from the intended send time, or, (sent), from the actual one.\n"
    "ITL: gaps between tokens (a chunk of k tokens after a gap g is k gaps of g/k); chunks: gaps between chunks.\n"
    "TPOT: (E2E - TTFT) / (output tokens - 1). network: E2E (sent) less the server's own time.\n"
    "Latencies are of requests that ended well; attainment counts the others as missed.\n";

std::string number(double ms) {
  if (std::isnan(ms)) return "-";
  return std::abs(ms) < 10     ? fmt::format("{:.2f}", ms)
         : std::abs(ms) < 1000 ? fmt::format("{:.1f}", ms)
                               : fmt::format("{:.0f}", ms);
}

void put_row(std::string& out, const char* name, const LatencySummary& s) {
  if (s.n == 0) return;
  out += fmt::format("{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", name, number(s.mean), number(s.p50), number(s.p90),
                     number(s.p95), number(s.p99), number(s.max), s.n);
}

std::string sparkline(const std::vector<ConcurrencyPoint>& curve) {
  static constexpr const char* kBars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int64_t most = 0;
  for (const ConcurrencyPoint& c : curve) most = std::max(most, c.running);
  std::string line;
  for (const ConcurrencyPoint& c : curve)
    line += most == 0 ? " " : kBars[std::min<int64_t>(7, 8 * c.running / (most + 1))];
  return line;
}

std::string range_text(const LengthRange& r) {
  return r.low == r.high ? std::to_string(r.low) : fmt::format("{}..{}", r.low, r.high);
}

std::string when_text(const ServeLoadSpec& spec, const ServeLoadPlan& p) {
  std::string text;
  if (p.closed_loop) return fmt::format("{} at a time", spec.max_concurrency);
  if (p.by_trace) text = fmt::format("at the trace's times, {:g} times as fast", spec.trace_speed);
  else if (p.arrivals.ramp != "none")
    text = fmt::format("{:g} to {:g} requests/s ({})", p.arrivals.ramp_from, p.arrivals.ramp_to, p.arrivals.ramp);
  else if (std::isinf(p.arrivals.rate)) text = "all at once";
  else text = fmt::format("{:g} requests/s", p.arrivals.rate);
  if (p.arrivals.burstiness != 1) text += fmt::format(" (burstiness {:g})", p.arrivals.burstiness);
  if (spec.max_concurrency > 0) text += fmt::format(", at most {} at a time", spec.max_concurrency);
  return text;
}

std::string what_text(const ServeLoadSpec& spec, const ServeLoadPlan& p) {
  const DatasetSpec& d = p.dataset;
  if (d.kind == "jsonl" || d.kind == "trace") return d.kind + " " + d.file;
  std::string text = fmt::format("{} in {} out {}", d.kind, range_text(d.input), range_text(d.output));
  if (d.kind == "shared-prefix") text += fmt::format(", {} prefixes of {}", d.prefixes, d.prefix_len);
  if (d.kind == "multi-turn") text += fmt::format(", {} turns", d.turns);
  if (spec.endpoint == "chat") text += ", chat";
  return text;
}

std::string ends_text(const LoadSummary& s) {
  std::string text;
  for (size_t i = 0; i < s.ends.size(); ++i)
    if (s.ends[i] > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", s.ends[i], load_end_name(static_cast<LoadEnd>(i)));
  return text;
}

std::string tokens_text(const LoadSummary& s) {
  std::string text = s.input_known ? fmt::format("{} in", s.input_tokens) : "unknown in (the server does not say)";
  if (s.cached_tokens >= 0 && s.input_known && s.input_tokens > 0)
    text += fmt::format(" ({:.1f} % out of the prefix cache)",
                        100 * static_cast<double>(s.cached_tokens) / static_cast<double>(s.input_tokens));
  text += fmt::format(", {} out; {:.1f} out/s", s.output_tokens, s.output_throughput);
  if (s.input_known) text += fmt::format(", {:.1f} in all/s", s.total_token_throughput);
  if (!s.tokens_exact) text += "\n              the server does not say how many tokens a chunk holds: one is assumed";
  return text;
}

// The commonest reason of a failure, word for word.
std::string first_error(const LoadRun& run) {
  for (const LoadOutcome& o : run.outcomes)
    if (o.end != LoadEnd::ok && o.end != LoadEnd::disconnected && !o.error.empty())
      return fmt::format("{}: {:.300}", load_end_name(o.end), o.error);
  return {};
}

// Who else used this host.
std::string others_text(const ClientHealth& h) {
  if (std::isnan(h.others_share))
    return "not known: the run was too short, or the server's processes cannot be told from others";
  return fmt::format("{:.0f} % of this host's CPU time{}", 100 * h.others_share,
                     h.is_quiet() ? "" : ": NOT QUIET, the times are of a crowded machine");
}

std::string cost_text(double price, const LoadSummary& s) {
  return fmt::format("{:.4g} for a million output tokens, {:.4g} for a million in all, at {:g} an hour\n",
                     cost_per_million(price, s.output_throughput), cost_per_million(price, s.total_token_throughput),
                     price);
}

}  // namespace

std::string objective_text(const LoadObjective& o) {
  std::string text;
  const auto add = [&](const char* name, double ms) {
    if (ms > 0) text += fmt::format("{}{} <= {:g} ms", text.empty() ? "" : ", ", name, ms);
  };
  add("TTFT", o.ttft_ms);
  add("ITL", o.itl_ms);
  add("TPOT", o.tpot_ms);
  add("E2E", o.e2e_ms);
  return text;
}

std::string load_name(const ServeLoadSpec& spec, const ServeLoadPlan& plan) {
  return what_text(spec, plan) + ", " + when_text(spec, plan);
}

std::string load_result_text(const ServeLoadSpec& spec, const ServeLoadPlan& plan, const LoadResult& r) {
  const LoadSummary& s = r.summary;
  std::string out = fmt::format("{} {}\n{}\n\n", spec.url, r.model_id, load_name(spec, plan));
  if (r.repeats > 1)
    out += fmt::format(
        "repeats       {}: requests and tokens are sums over them; rates, shares and latencies medians of theirs\n",
        r.repeats);
  out += fmt::format("requests      {} in {:.2f} s ({:.3g}/s): {}\n", s.requests, s.duration_s, s.request_throughput,
                     ends_text(s));
  if (const std::string error = first_error(r.run); !error.empty()) out += "              " + error + "\n";
  if (s.retry_rate > 0 || s.reject_rate > 0)
    out += fmt::format("refused       {:.1f} % of the requests; {:.2g} retries to a request\n", 100 * s.reject_rate,
                       s.retry_rate);
  out += "tokens        " + tokens_text(s) + "\n";
  if (plan.objective.any())
    out += fmt::format("objective     {}: kept by {:.1f} %, goodput {:.3g} requests/s\n",
                       objective_text(plan.objective), 100 * s.attainment, s.goodput);
  if (r.golden_checked > 0)
    out += fmt::format("golden        {} texts compared, {} differ\n", r.golden_checked,
                       s.ends[static_cast<size_t>(LoadEnd::wrong_text)]);
  if (spec.price > 0) out += "cost          " + cost_text(spec.price, s);
  out += fmt::format("\n{:<14}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", "ms", "mean", "p50", "p90", "p95", "p99", "max",
                     "n");
  put_row(out, "TTFT", s.ttft);
  put_row(out, "ITL", s.itl_token);
  put_row(out, "TPOT", s.tpot);
  put_row(out, "E2E", s.e2e);
  put_row(out, "TTFT (sent)", s.ttft_sent);
  put_row(out, "E2E (sent)", s.e2e_sent);
  put_row(out, "ITL, chunks", s.itl);
  put_row(out, "sent late", s.client_late);
  if (r.spans) {
    for (const auto& [name, summary] : r.spans->spans) put_row(out, ("  " + name).c_str(), summary);
    out += fmt::format("  spans of {} requests; {} have none\n", r.spans->joined, r.spans->missing);
  } else {
    put_row(out, "  queue", s.queue);
    put_row(out, "  prefill", s.prefill);
    put_row(out, "  decode", s.decode);
    put_row(out, "  network", s.network);
  }
  out += fmt::format("\nconcurrency   {} at most {}, {:.1f} on average\n", sparkline(r.curve), s.max_concurrent,
                     s.mean_concurrent);
  out += fmt::format(
      "client        {:.0f} % of a core, {} connections{}\n", 100 * r.health.cpu_share, r.run.connections,
      std::isnan(r.health.late_p99_ms) ? "" : fmt::format(", late by {:.2f} ms at p99", r.health.late_p99_ms));
  out += "others        " + others_text(r.health) + "\n";
  if (r.health.is_void) out += "VOID          " + r.health.why + "\n";
  return out + "\n" + kDefinitions;
}

std::string rate_answer_text(const ServeLoadSpec& spec, const RateAnswer& a, const LoadResult* best) {
  std::string out;
  for (const RateProbe& p : a.probes)
    out += p.verdict == ProbeVerdict::is_void
               ? fmt::format("  {:>10.4g} requests/s: void, the client could not offer it\n", p.rate)
               : fmt::format("  {:>10.4g} requests/s: {:5.1f} % {}\n", p.rate, 100 * p.attainment,
                             p.verdict == ProbeVerdict::kept ? "keep the objective" : "only");
  if (best == nullptr) return out + fmt::format("no rate: {}\n", a.why);
  const LoadSummary& s = best->summary;
  out +=
      fmt::format("{:.4g} requests/s keep the objective for {:.0f} % of the requests\n", a.rate, 100 * spec.attainment);
  out += fmt::format(
      "  there: {:.1f} output tokens/s, TTFT p99 {} ms, ITL p99 {} ms, refused {:.1f} %, {:.2g} retries "
      "to a request, queue p99 {} ms\n",
      s.output_throughput, number(s.ttft.p99), number(s.itl_token.p99), 100 * s.reject_rate, s.retry_rate,
      number(s.queue.p99));
  if (spec.price > 0) out += "  cost: " + cost_text(spec.price, s);
  if (!a.why.empty()) out += "  " + a.why + "\n";
  return out;
}

}  // namespace rw
