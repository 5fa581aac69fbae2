// A serving plan as JSON and as text.
#include <fmt/core.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "libcore/base/units.h"
#include "libcore/plan/serve/serve_plan.h"

namespace rw {
namespace {

Json memory_json(const ServeMemory& m) {
  Json j = {{"device_bytes", m.device_bytes},
            {"weights_bytes", m.weights},
            {"runtime_bytes", m.runtime},
            {"kv_bytes", m.kv},
            {"kv_bytes_per_token", m.kv_bytes_per_token()},
            {"pages", m.n_pages},
            {"page_tokens", m.page_tokens},
            {"full_sequences", m.full_sequences},
            {"max_context", m.max_context}};
  if (!m.fault.empty()) j["fault"] = m.fault;
  return j;
}

Json group_json(const ServerGroup& g) {
  return {{"tp", g.tp},     {"replicas", g.replicas},         {"sustained_rate", g.rate}, {"capacity", g.capacity},
          {"load", g.load}, {"memory", memory_json(g.memory)}};
}

Json option_json(const ServeOption& o) {
  Json j = {{"mode", o.split ? "split" : "colocated"}, {"feasible", o.feasible}};
  if (!o.why.empty()) j["why"] = o.why;
  j["node"] = o.node;
  j["device"] = o.device;
  j["devices"] = o.devices;
  j["devices_there"] = o.devices_there;
  j[o.split ? "prefill" : "server"] = group_json(o.server);
  if (o.split) {
    j["decode"] = group_json(o.decoder);
    j["handoff_s"] = o.handoff_s;
  }
  j["lone_ttft_s"] = o.lone_ttft_s;
  j["lone_itl_s"] = o.lone_itl_s;
  j["predicted"] = o.devices > 0 ? serve_stats_json(o.stats) : Json(nullptr);
  if (o.cost_per_hour > 0) {
    j["cost_per_hour"] = o.cost_per_hour;
    j["cost_per_million_tokens"] = o.cost_per_million_tokens;
  }
  j["provenance"] = provenance_name(o.provenance);
  j["error_bar"] = provenance_error(o.provenance);
  return j;
}

std::string servers_text(const ServeOption& o) {
  if (!o.split) return fmt::format("{} x tp {}", o.server.replicas, o.server.tp);
  return fmt::format("{} x tp {} + {} x tp {}", o.server.replicas, o.server.tp, o.decoder.replicas, o.decoder.tp);
}

std::string ms(double s) { return fmt::format("{:.4g}", 1000 * s); }

std::string row(const ServeOption& o, const std::string& mark) {
  const std::string mode = o.split ? "split" : "colocated";
  if (o.devices == 0) return fmt::format("{:>2} {:<9} tp {:<18} {}\n", mark, mode, o.server.tp, o.why);
  const ServeStats& s = o.stats;
  return fmt::format("{:>2} {:<9} {:<21} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7.2f} {:>8.4g} {:>9} {:>8} {:>8}  {}\n", mark,
                     mode, servers_text(o), o.devices, ms(s.ttft_s.p50), ms(s.ttft_s.p99), ms(s.itl_s.p50),
                     ms(s.itl_s.p99), 100 * s.attainment, s.goodput, format_count(s.output_tokens_per_s),
                     o.cost_per_hour > 0 ? fmt::format("{:.4g}", o.cost_per_hour) : "-",
                     o.cost_per_million_tokens > 0 ? fmt::format("{:.3g}", o.cost_per_million_tokens) : "-", o.why);
}

std::string memory_text(const ServerGroup& g, const char* name) {
  const ServeMemory& m = g.memory;
  return fmt::format(
      "{}tp {}: of {} a device: weights {}, cache {} ({:.4g} KiB a token), run time {}; {:.1f} sequences of full "
      "length "
      "at once, longest that fits {} tokens; a server sustains {:.3g} requests/s\n",
      name, g.tp, format_bytes(static_cast<double>(m.device_bytes)), format_bytes(static_cast<double>(m.weights)),
      format_bytes(static_cast<double>(m.kv)), m.kv_bytes_per_token() / 1024,
      format_bytes(static_cast<double>(m.runtime)), m.full_sequences, m.max_context, g.rate);
}

std::string load_text(const ServeOption& o) {
  std::string text;
  for (const ServerGroup* g : {&o.server, &o.decoder})
    if (g->load > 0)
      text += fmt::format("{}load {:.3g} % of the rate it sustains{}", text.empty() ? ", " : " and ", 100 * g->load,
                          !o.split         ? ""
                          : g == &o.server ? " (prefill)"
                                           : " (decode)");
  return text;
}

std::string best_text(const ServeOption& o) {
  const ServeStats& s = o.stats;
  std::string text =
      o.split ? memory_text(o.server, "prefill ") + memory_text(o.decoder, "decode ") : memory_text(o.server, "");
  text += fmt::format(
      "TTFT p50 {} p90 {} p99 {} ms; ITL p50 {} p90 {} p99 {} ms; end to end p50 {} p99 {}; alone {} ms to the first "
      "token\n",
      ms(s.ttft_s.p50), ms(s.ttft_s.p90), ms(s.ttft_s.p99), ms(s.itl_s.p50), ms(s.itl_s.p90), ms(s.itl_s.p99),
      format_seconds(s.e2e_s.p50), format_seconds(s.e2e_s.p99), ms(o.lone_ttft_s));
  text += fmt::format(
      "a server: a step was running {:.0f} % of the time{}, {:.2g} requests waiting on average and {} at most, cache "
      "{:.0f} % full on average and "
      "{:.0f} % at most, {} preemptions, {:.1f} % of prompt tokens found in the cache{}\n",
      100 * s.busy, load_text(o), s.mean_waiting, s.most_waiting, 100 * s.mean_kv_usage, 100 * s.most_kv_usage,
      s.preemptions, 100 * s.prefix_hit_rate,
      s.refused > 0 ? fmt::format("; {} requests can never run", s.refused) : "");
  if (o.split) text += fmt::format("handing over a prompt of mean length takes {} ms\n", ms(o.handoff_s));
  text += fmt::format("expected error of the times {:.0f} % ({}{})\n", 100 * provenance_error(o.provenance),
                      provenance_name(o.provenance),
                      o.provenance == Provenance::guess
                          ? ": decode steps were not checked against a measurement of such a device"
                          : "");
  return text;
}

}  // namespace

Json serve_plan_json(const ServePlanQuery& q, const ServePlan& plan) {
  Json options = Json::array(), advice = Json::array();
  for (const ServeOption& o : plan.options) options.push_back(option_json(o));
  for (const ServeAdvice& a : plan.advice) advice.push_back({{"kind", a.kind}, {"text", a.text}, {"change", a.change}});
  return {{"model", q.spec.serve.model},
          {"cluster", q.cluster.name},
          {"nodes", q.cluster.node_count()},
          {"workload", workload_json(q.workload)},
          {"objective",
           {{"ttft_s", q.spec.serve.slo_ttft_ms / 1000},
            {"itl_s", q.spec.serve.slo_itl_ms / 1000},
            {"itl_of", q.spec.itl_of},
            {"attainment", q.spec.attainment}}},
          {"feasible", plan.feasible()},
          {"options", options},
          {"advice", advice}};
}

std::string serve_plan_text(const ServePlanQuery& q, const ServePlan& plan) {
  const bool priced = by_price(plan.options);
  std::string text = fmt::format(
      "{} requests, {:.4g} a second, {:.0f} tokens in and {:.0f} out on average; TTFT within {:.4g} ms and {} gap "
      "within "
      "{:.4g} ms for {:.4g} % of them; first what keeps it, by {}\n",
      q.workload.requests.size(), q.workload.rate, q.workload.mean_input(), q.workload.mean_output(),
      q.spec.serve.slo_ttft_ms, q.spec.itl_of, q.spec.serve.slo_itl_ms, 100 * q.spec.attainment,
      priced ? "the devices' price an hour" : "the number of devices");
  text += fmt::format("{:>2} {:<9} {:<21} {:>7} {:>8} {:>8} {:>8} {:>8} {:>7} {:>8} {:>9} {:>8} {:>8}\n", "", "",
                      "servers", "devices", "TTFT p50", "p99 ms", "ITL p50", "p99 ms", "kept %", "good/s", "tokens/s",
                      "$/hour", "$/Mtok");
  int64_t n = 0;
  for (const ServeOption& o : plan.options) {
    if (++n > q.spec.top) break;
    text += row(o, o.feasible ? (n == 1 ? "*" : "") : "-");
  }
  if (plan.options.empty()) return text;
  const ServeOption& best = plan.options.front();
  if (best.devices > 0) text += best_text(best);
  for (const ServeAdvice& a : plan.advice)
    text += fmt::format("{} {}\n", &a == plan.advice.data() ? "would keep it:" : "           or:", a.text);
  return text;
}

}  // namespace rw
