// What /metrics says, against the formats' documentation and sums made by hand.
#include <doctest/doctest.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "libcore/api/request_telemetry.h"
#include "libcore/api/server_metrics.h"
#include "tests/api/served_fixture.h"

namespace rw {
namespace {

ServeSpec spec_with(const std::string& compat, double slo_ttft_ms = 0, double slo_itl_ms = 0) {
  ServeSpec spec;
  spec.metrics_compat = compat;
  spec.slo_ttft_ms = slo_ttft_ms;
  spec.slo_itl_ms = slo_itl_ms;
  return spec;
}

// The value of the one line that has the name and all of the labels; -1: there is none.
double value_of(const std::string& text, const std::string& name, const std::vector<std::string>& labels = {}) {
  std::istringstream lines(text);
  double value = -1;
  int found = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + "{") && !line.starts_with(name + " ")) continue;
    bool all = true;
    for (const std::string& label : labels) all = all && line.find(label) != std::string::npos;
    if (!all) continue;
    ++found;
    value = std::atof(line.c_str() + line.rfind(' '));
  }
  CHECK(found <= 1);
  return value;
}

const MetricsModel kModel{.name = "m", .identity = "00ff", .max_model_len = 64, .pages = 10};

SequenceEvent event_at(double last_token, int n_tokens, int64_t choice = 0) {
  SequenceEvent e;
  e.choice = choice;
  e.tokens.resize(static_cast<size_t>(n_tokens));
  e.times = {.received = 100, .queued = 100.5, .scheduled = 101, .first_token = 102, .last_token = last_token};
  return e;
}

TEST_CASE("metrics: before there is a model, HTTP alone") {
  ServerMetrics metrics(spec_with("none"));
  metrics.http("/health", 503);
  metrics.http("/health", 503);
  const std::string text = metrics.text({.http = {.connections = 3, .accepted = 5}, .healthy = false});
  CHECK(value_of(text, "rankwright_http_requests_total", {"route=\"/health\"", "status=\"503\""}) == 2);
  CHECK(value_of(text, "rankwright_http_connections") == 3);
  CHECK(value_of(text, "rankwright_http_connections_accepted_total") == 5);
  CHECK(value_of(text, "rankwright_healthy") == 0);
  CHECK(text.find("model_name") == std::string::npos);
}

TEST_CASE("metrics: latencies of one request, by hand") {
  ServerMetrics metrics(spec_with("none", /*slo_ttft_ms=*/1500, /*slo_itl_ms=*/1000));
  metrics.set_model(kModel);
  metrics.admitted({.prompts = 1, .n = 1, .max_tokens = 8});
  RequestTelemetry request({.id = "r", .prompt_tokens = {7}, .received_s = 100}, metrics, nullptr);
  request.event(event_at(102, 1));    // the first: 2 s after it arrived
  request.event(event_at(102.5, 1));  // a gap of 0.5 s
  request.event(event_at(103.5, 2));  // two of 0.5 s
  SequenceEvent end = event_at(103.5, 0);
  end.finish = FinishReason::stop;
  request.event(end);
  request.event(end);  // nothing after the end
  const EngineStats stats{
      .used_pages = 4, .pages = 10, .free_pages = 3, .cached_pages = 4, .pinned_pages = 1, .heartbeat_s = 95};
  const std::string text = metrics.text({.engine = &stats, .healthy = true, .now = 100});
  const auto count = [&](const char* name) { return value_of(text, std::string("rankwright_") + name); };
  CHECK(count("time_to_first_token_seconds_count") == 1);
  CHECK(count("time_to_first_token_seconds_sum") == 2);
  CHECK(count("inter_token_latency_seconds_count") == 3);
  CHECK(count("inter_token_latency_seconds_sum") == 1.5);
  CHECK(count("time_per_output_token_seconds_sum") == 0.5);
  CHECK(count("request_latency_seconds_sum") == 3.5);
  CHECK(count("request_queue_seconds_sum") == 0.5);
  CHECK(count("request_prefill_seconds_sum") == 1);
  CHECK(count("request_decode_seconds_sum") == 1.5);
  CHECK(count("request_prompt_tokens_sum") == 7);
  CHECK(count("request_generation_tokens_sum") == 4);
  CHECK(count("requests_admitted_total") == 1);
  CHECK(value_of(text, "rankwright_sequences_finished_total", {"reason=\"stop\""}) == 1);
  CHECK(value_of(text, "rankwright_sequences_finished_total", {"reason=\"abort\""}) == 0);
  CHECK(value_of(text, "rankwright_slo_sequences_total", {"slo=\"ttft\"", "attained=\"false\""}) == 1);
  CHECK(value_of(text, "rankwright_slo_sequences_total", {"slo=\"ttft\"", "attained=\"true\""}) == 0);
  CHECK(value_of(text, "rankwright_slo_sequences_total", {"slo=\"itl\"", "attained=\"true\""}) == 1);
  CHECK(count("kv_usage_ratio") == 0.4);  // 10 - 3 free - 3 that are merely kept
  CHECK(count("engine_heartbeat_age_seconds") == 5);
  CHECK(text.find("model_name=\"m\",model_identity=\"00ff\"") != std::string::npos);
  CHECK(text.find("vllm:") == std::string::npos);
}

TEST_CASE("metrics: a cancelled sequence has no latencies, refusals have reasons") {
  ServerMetrics metrics(spec_with("none"));
  metrics.set_model(kModel);
  metrics.rejected("queue_full");
  metrics.rejected("queue_full");
  RequestTelemetry request({.id = "r", .n = 2, .prompt_tokens = {7}, .received_s = 100}, metrics, nullptr);
  SequenceEvent end = event_at(0, 0, 1);
  end.finish = FinishReason::cancelled;
  request.event(end);
  end.choice = 2;  // there is none
  request.event(end);
  const EngineStats stats;
  const std::string text = metrics.text({.engine = &stats});
  CHECK(value_of(text, "rankwright_requests_rejected_total", {"reason=\"queue_full\""}) == 2);
  CHECK(value_of(text, "rankwright_sequences_finished_total", {"reason=\"abort\""}) == 1);
  CHECK(value_of(text, "rankwright_request_latency_seconds_count") == 0);
  CHECK(value_of(text, "rankwright_kv_usage_ratio") == 0);
  CHECK(text.find("rankwright_slo_") == std::string::npos);
}

TEST_CASE("metrics: vLLM's names and buckets") {
  ServerMetrics metrics(spec_with("vllm"));
  metrics.set_model(kModel);
  metrics.admitted({.prompts = 1, .n = 2, .max_tokens = 8});
  metrics.rejected("queue_full");
  RequestTelemetry request({.id = "r", .prompt_tokens = {7}, .received_s = 100}, metrics, nullptr);
  request.event(event_at(102, 1));
  SequenceEvent end = event_at(102.3, 1);
  end.finish = FinishReason::length;
  request.event(end);
  const EngineStats stats{.running = 3,
                          .waiting = 4,
                          .used_pages = 5,
                          .pages = 10,
                          .free_pages = 5,
                          .prompt_tokens = 70,
                          .cached_tokens = 16,
                          .generated_tokens = 9,
                          .prefix_queries = 70,
                          .prefix_hits = 16,
                          .preemptions = 2};
  const std::string text = metrics.text({.engine = &stats});
  const auto value = [&](const char* name, const std::vector<std::string>& labels = {}) {
    std::vector<std::string> all = labels;
    all.push_back("model_name=\"m\",engine=\"0\"");
    return value_of(text, std::string("vllm:") + name, all);
  };
  CHECK(value("num_requests_running") == 3);
  CHECK(value("num_requests_waiting") == 4);
  CHECK(value("num_requests_waiting_by_reason", {"reason=\"capacity\""}) == 4);
  CHECK(value("kv_cache_usage_perc") == 0.5);
  CHECK(value("prompt_tokens_total") == 70);
  CHECK(value("generation_tokens_total") == 9);
  CHECK(value("prompt_tokens_cached_total") == 16);
  CHECK(value("prefix_cache_queries_total") == 70);
  CHECK(value("prefix_cache_hits_total") == 16);
  CHECK(value("num_preemptions_total") == 2);
  CHECK(value("admission_rejections_total") == 1);
  CHECK(value("request_success_total", {"finished_reason=\"length\""}) == 1);
  CHECK(value("time_to_first_token_seconds_bucket", {"le=\"1\""}) == 0);
  CHECK(value("time_to_first_token_seconds_bucket", {"le=\"2.5\""}) == 1);
  CHECK(value("time_to_first_token_seconds_bucket", {"le=\"2560\""}) == 1);
  CHECK(value("inter_token_latency_seconds_bucket", {"le=\"0.4\""}) == 1);
  CHECK(value("inter_token_latency_seconds_bucket", {"le=\"0.2\""}) == 0);
  CHECK(value("request_time_per_output_token_seconds_count") == 1);
  CHECK(value("e2e_request_latency_seconds_bucket", {"le=\"2.5\""}) == 1);
  CHECK(value("request_queue_time_seconds_sum") == 0.5);
  CHECK(value("request_prefill_time_seconds_sum") == 1);
  CHECK(value("request_prompt_tokens_bucket", {"le=\"5\""}) == 0);
  CHECK(value("request_prompt_tokens_bucket", {"le=\"50\""}) == 1);
  CHECK(value("request_prompt_tokens_bucket", {"le=\"100\""}) == -1);  // beyond the longest sequence
  CHECK(value("request_params_n_sum") == 2);
  CHECK(value("request_params_max_tokens_sum") == 8);
  CHECK(value("cache_config_info", {"block_size=\"16\"", "num_gpu_blocks=\"10\""}) == 1);
}

TEST_CASE("metrics: over HTTP") {
  Served s(spec_with("vllm"));
  post(s.port, "/v1/completions", R"({"prompt":"a"})");
  post(s.port, "/v1/completions", "{");
  const TestReply r = get(s.port, "/metrics");
  CHECK(r.status == 200);
  CHECK(r.headers.at("content-type") == "text/plain; version=0.0.4; charset=utf-8");
  CHECK(value_of(r.body, "rankwright_http_requests_total", {"route=\"/v1/completions\"", "status=\"200\""}) == 1);
  CHECK(value_of(r.body, "rankwright_http_requests_total", {"route=\"/v1/completions\"", "status=\"400\""}) == 1);
  CHECK(value_of(r.body, "rankwright_time_to_first_token_seconds_count") == 1);
  CHECK(value_of(r.body, "rankwright_requests_live") == 0);
  CHECK(value_of(r.body, "vllm:time_to_first_token_seconds_count") == 1);
}

}  // namespace
}  // namespace rw
