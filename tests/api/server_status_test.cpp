// Health, keys, refusals and the routes that only look.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/api/routes.h"
#include "libcore/base/clock.h"
#include "tests/api/served_fixture.h"

namespace rw {
namespace {

Json error_of(const TestReply& r) { return Json::parse(r.body)["error"]; }

TEST_CASE("health: from loading to failed") {
  Served s({}, /*load=*/false);
  TestReply r = get(s.port, "/health");
  CHECK(r.status == 503);
  CHECK(Json::parse(r.body)["status"] == "loading");
  CHECK(get(s.port, "/ping").status == 503);
  r = post(s.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 503);
  CHECK(error_of(r)["type"] == "unavailable_error");
  CHECK(r.headers.at("retry-after") == "2");
  CHECK(get(s.port, "/v1/models").status == 503);
  CHECK(get(s.port, "/version").status == 200);
  CHECK(get(s.port, "/metrics").status == 200);
  s.load();
  r = get(s.port, "/health");
  CHECK(r.status == 200);
  CHECK(r.body == R"({"status":"ok"})");
  CHECK(get(s.port, "/ping").status == 200);
  EngineStats stats;
  stats.running = 1;
  stats.heartbeat_s = now_s() - 60;
  s.engine.set_stats(stats);
  CHECK(Json::parse(get(s.port, "/health").body)["status"] == "stalled");
  s.engine.set_state(EngineState::failed);
  r = get(s.port, "/health");
  CHECK(r.status == 503);
  CHECK(Json::parse(r.body) == Json::parse(R"({"status":"failed","message":"rank 1 on host b: gone"})"));
  r = post(s.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 503);
  CHECK(error_of(r)["message"].get<std::string>().find("rank 1") != std::string::npos);
}

TEST_CASE("health: a server that drains") {
  Served d;
  d.server.drain();
  CHECK(Json::parse(get(d.port, "/health").body)["status"] == "draining");
  const TestReply r = post(d.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 503);
  CHECK(r.headers.count("retry-after") == 1);
}

TEST_CASE("the engine's refusals are statuses that clients understand") {
  Served s;
  using Verdict = Admission::Verdict;
  s.engine.refuse_with({.verdict = Verdict::queue_full, .retry_after_s = 2.5, .message = "256 wait"});
  TestReply r = post(s.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 429);
  CHECK(r.headers.at("retry-after") == "3");
  CHECK(r.headers.at("retry-after-ms") == "2500");
  CHECK(error_of(r) == Json::parse(R"({"message":"256 wait","type":"rate_limit_error","param":null,
      "code":"queue_full"})"));
  s.engine.refuse_with({.verdict = Verdict::too_slow, .retry_after_s = 0.2, .message = "slow"});
  r = post(s.port, "/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"stream":true})");
  CHECK(r.status == 429);
  CHECK(error_of(r)["code"] == "slo_unreachable");
  s.engine.refuse_with({.verdict = Verdict::too_long, .message = "never fits"});
  r = post(s.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 400);
  CHECK(error_of(r)["type"] == "invalid_request_error");
  s.engine.refuse_with({.verdict = Verdict::not_serving, .retry_after_s = 1, .message = "draining"});
  r = post(s.port, "/v1/completions", R"({"prompt":"a"})");
  CHECK(r.status == 503);
  CHECK(error_of(r)["type"] == "unavailable_error");
  CHECK(s.server.live_requests() == 0);
}

TEST_CASE("keys: on every route but /health and /ping") {
  ServeSpec spec;
  spec.api_key = "secret";
  Served s(spec);
  for (const char* path : {"/v1/models", "/v1/models/m", "/version", "/metrics", "/debug/memory", "/load"}) {
    CAPTURE(path);
    const TestReply r = get(s.port, path);
    CHECK(r.status == 401);
    CHECK(r.headers.at("www-authenticate") == "Bearer");
    CHECK(error_of(r)["code"] == "invalid_api_key");
    CHECK(get(s.port, path, {{"Authorization", "Bearer secret"}}).status == 200);
  }
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize", "/apply-template",
                           "/v1/tokenize", "/v1/detokenize"}) {
    CAPTURE(path);
    CHECK(post(s.port, path, "{}").status == 401);
    CHECK(post(s.port, path, "{}", {{"Authorization", "Bearer secret"}}).status == 400);
  }
  CHECK(get(s.port, "/health").status == 200);
  CHECK(get(s.port, "/ping").status == 200);
}

TEST_CASE("keys: compared whole") {
  const auto right = [](const std::string& header) { return right_api_key(&header, "secret"); };
  CHECK(right("Bearer secret"));
  CHECK(right("bearer secret"));
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Bearer Secret", "secret",
                            "Basic secret", "Bearer  secret"})
    CHECK_FALSE(right(wrong));
  CHECK_FALSE(right_api_key(nullptr, "secret"));
}

TEST_CASE("models: with what benchmarks read") {
  Served s;
  const Json json = Json::parse(get(s.port, "/v1/models").body);
  CHECK(json == Json::parse(R"({"object":"list","data":[{"id":"m","object":"model","created":1700000000,
      "owned_by":"rankwright","root":"/models/m","parent":null,"max_model_len":64,"identity":"0123456789abcdef"}]})"));
  CHECK(Json::parse(get(s.port, "/v1/models/m").body) == json["data"][0]);
  const TestReply r = get(s.port, "/v1/models/other");
  CHECK(r.status == 404);
  CHECK(error_of(r)["code"] == "model_not_found");
}

TEST_CASE("unknown paths, wrong methods, ids in replies") {
  Served s;
  TestReply r = get(s.port, "/nowhere");
  CHECK(r.status == 404);
  CHECK(error_of(r)["type"] == "invalid_request_error");
  CHECK(r.headers.count("x-request-id") == 1);
  CHECK(post(s.port, "/nowhere/at/all", "{}").status == 404);
  CHECK(get(s.port, "/v1/completions").status == 405);
  r = get(s.port, "/version",
          {{"x-request-id", "a b"}, {"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}});
  CHECK(r.headers.at("x-request-id").size() == 32);
  CHECK(r.headers.at("traceparent").starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-"));
  CHECK(r.headers.at("traceparent").find("00f067aa0ba902b7") == std::string::npos);
  r = post(s.port, "/v1/completions", "{", {{"x-request-id", "mine"}});
  CHECK(r.status == 400);
  CHECK(r.headers.at("x-request-id") == "mine");
  CHECK(Json::parse(get(s.port, "/load").body) == Json::parse(R"({"server_load":0,"running":0,"waiting":0})"));
}

TEST_CASE("bodies that are too large are refused, and the next request works") {
  ServeSpec spec;
  spec.max_body = 2048;
  Served s(spec);
  const std::string large(4096, 'a');
  CHECK(post(s.port, "/v1/completions", "{\"prompt\":\"" + large + "\"}").status == 413);
  CHECK(post(s.port, "/v1/completions", R"({"prompt":"a"})").status == 200);
}

}  // namespace
}  // namespace rw
