#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "libcore/bench/load/load_report.h"

namespace rw {
namespace {

void put(Json& json, const std::string& name, const LatencySummary& s) {
  json["mean_" + name + "_ms"] = s.mean;
  json["median_" + name + "_ms"] = s.median;
  json["std_" + name + "_ms"] = s.std;
  json["p50_" + name + "_ms"] = s.p50;
  json["p90_" + name + "_ms"] = s.p90;
  json["p95_" + name + "_ms"] = s.p95;
  json["p99_" + name + "_ms"] = s.p99;
  json["max_" + name + "_ms"] = s.max;
}

// vLLM's benchmark writes "inf" for all at once.
Json rate_json(const ServeLoadPlan& p) {
  if (p.closed_loop || (p.arrivals.ramp == "none" && std::isinf(p.arrivals.rate))) return "inf";
  return p.arrivals.ramp == "none" ? Json(p.arrivals.rate) : Json(nullptr);
}

Json curve_json(const std::vector<ConcurrencyPoint>& curve) {
  Json json = Json::array();
  for (const ConcurrencyPoint& c : curve)
    json.push_back({{"at_s", c.at_s}, {"running", c.running}, {"output_tokens_per_s", c.output_tokens_per_s}});
  return json;
}

Json spans_json(const SpanJoin& join) {
  Json json = {{"joined", join.joined}, {"missing", join.missing}};
  for (const auto& [name, summary] : join.spans) put(json, name, summary);
  return json;
}

// Seconds, a value a request, in the order they were due.
void put_details(Json& json, const LoadRun& run) {
  Json inputs = Json::array(), outputs = Json::array(), ttfts = Json::array(), itls = Json::array(),
       starts = Json::array(), dues = Json::array(), latencies = Json::array(), errors = Json::array(),
       ends = Json::array(), ids = Json::array();
  for (const LoadOutcome& o : run.outcomes) {
    inputs.push_back(o.prompt_known ? Json(o.prompt_tokens) : Json(nullptr));
    outputs.push_back(o.output_tokens);
    ttfts.push_back(o.chunks.empty() ? Json(nullptr) : Json(o.chunks.front().at_s - o.sent_s));
    Json gaps = Json::array();
    for (const double ms : chunk_gaps_ms(o)) gaps.push_back(ms / 1e3);
    itls.push_back(std::move(gaps));
    starts.push_back(o.sent_s);
    dues.push_back(o.due_s);
    latencies.push_back(o.end_s - o.sent_s);
    errors.push_back(o.error);
    ends.push_back(load_end_name(o.end));
    ids.push_back(o.request_id);
  }
  json["input_lens"] = std::move(inputs);
  json["output_lens"] = std::move(outputs);
  json["ttfts"] = std::move(ttfts);
  json["itls"] = std::move(itls);
  json["latencies"] = std::move(latencies);
  json["start_times"] = std::move(starts);
  json["due_times"] = std::move(dues);
  json["errors"] = std::move(errors);
  json["request_ends"] = std::move(ends);
  json["request_ids"] = std::move(ids);
}

}  // namespace

double cost_per_million(double price_per_hour, double tokens_per_s) {
  return tokens_per_s > 0 ? price_per_hour / 3600 / tokens_per_s * 1e6 : std::numeric_limits<double>::quiet_NaN();
}

Json load_summary_json(const LoadSummary& s) {
  Json ends = Json::object();
  for (size_t i = 0; i < s.ends.size(); ++i)
    if (s.ends[i] > 0) ends[load_end_name(static_cast<LoadEnd>(i))] = s.ends[i];
  Json json = {{"duration", s.duration_s},
               {"completed", s.completed},
               {"failed", s.failed},
               {"disconnected", s.disconnected},
               {"total_input_tokens", s.input_known ? Json(s.input_tokens) : Json(nullptr)},
               {"total_output_tokens", s.output_tokens},
               {"total_cached_tokens", s.cached_tokens < 0 ? Json(nullptr) : Json(s.cached_tokens)},
               {"request_throughput", s.request_throughput},
               {"output_throughput", s.output_throughput},
               {"total_token_throughput", s.total_token_throughput},
               {"attainment", s.attainment},
               {"retry_rate", s.retry_rate},
               {"reject_rate", s.reject_rate},
               {"tokens_exact", s.tokens_exact},
               {"max_concurrent_requests", s.max_concurrent},
               {"mean_concurrent_requests", s.mean_concurrent},
               {"ends", std::move(ends)}};
  put(json, "ttft", s.ttft_sent);
  put(json, "tpot", s.tpot);
  put(json, "itl", s.itl);
  put(json, "e2el", s.e2e_sent);
  put(json, "ttft_from_due", s.ttft);
  put(json, "e2el_from_due", s.e2e);
  put(json, "itl_token", s.itl_token);
  put(json, "client_late", s.client_late);
  put(json, "queue", s.queue);
  put(json, "prefill", s.prefill);
  put(json, "decode", s.decode);
  put(json, "network", s.network);
  return json;
}

Json load_result_json(const ServeLoadSpec& spec, const ServeLoadPlan& plan, const LoadResult& r) {
  Json json = {{"date", r.date},
               {"backend", spec.endpoint == "chat" ? "openai-chat" : "openai"},
               {"model_id", r.model_id},
               {"num_prompts", r.summary.requests},
               {"request_rate", rate_json(plan)},
               {"burstiness", plan.arrivals.burstiness},
               {"max_concurrency", spec.max_concurrency > 0 ? Json(spec.max_concurrency) : Json(nullptr)}};
  json.update(load_summary_json(r.summary));
  json["request_goodput"] = plan.objective.any() ? Json(r.summary.goodput) : Json(nullptr);
  json["void"] = r.health.is_void;
  json["void_why"] = r.health.why;
  json["client_cpu_share"] = r.health.cpu_share;
  json["others_cpu_share"] = r.health.others_share;
  json["client_connections"] = r.run.connections;
  json["golden_checked"] = r.golden_checked;
  if (spec.price > 0) {
    json["cost_per_million_output_tokens"] = cost_per_million(spec.price, r.summary.output_throughput);
    json["cost_per_million_tokens"] = cost_per_million(spec.price, r.summary.total_token_throughput);
  }
  json["server_spans"] = r.spans ? spans_json(*r.spans) : Json(nullptr);
  json["concurrency"] = curve_json(r.curve);
  if (spec.save_detailed) put_details(json, r.run);
  return json;
}

Json rate_answer_json(const RateAnswer& a) {
  constexpr const char* kVerdicts[] = {"kept", "missed", "void"};
  Json probes = Json::array();
  for (const RateProbe& p : a.probes)
    probes.push_back(
        {{"rate", p.rate}, {"attainment", p.attainment}, {"verdict", kVerdicts[static_cast<size_t>(p.verdict)]}});
  return {{"rate", a.rate},
          {"above", a.above > 0 ? Json(a.above) : Json(nullptr)},
          {"limited_by_client", a.limited_by_client},
          {"why", a.why},
          {"probes", std::move(probes)}};
}

}  // namespace rw
