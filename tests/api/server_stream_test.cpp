// Streams over sockets: chunks, ends, clients that go, failures in the middle.
#include <doctest/doctest.h>

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/api/served_fixture.h"

namespace rw {
namespace {

const std::string kHello = R"("messages":[{"role":"user","content":"hi"}])";
std::string body_of(const std::string& fields) { return R"({"model":"m","stream":true,)" + fields + "}"; }

TEST_CASE("stream: a chat") {
  Served s;
  const TestReply r = post(s.port, "/v1/chat/completions", body_of(kHello));
  CHECK(r.status == 200);
  CHECK(r.headers.at("content-type").starts_with("text/event-stream"));
  const auto events = r.events();
  REQUIRE(events.size() == 4);
  CHECK(events[3] == "[DONE]");
  const Json first = Json::parse(events[0]);
  CHECK(first["object"] == "chat.completion.chunk");
  CHECK(first["choices"][0]["delta"] == Json::parse(R"({"role":"assistant","content":"o"})"));
  CHECK(first["choices"][0]["finish_reason"].is_null());
  CHECK_FALSE(first.contains("usage"));
  CHECK(Json::parse(events[1])["choices"][0]["delta"] == Json::parse(R"({"content":"k"})"));
  CHECK(Json::parse(events[2])["choices"][0]["finish_reason"] == "length");
  for (int i = 0; i < 3; ++i) CHECK(Json::parse(events[static_cast<size_t>(i)])["id"] == first["id"]);
}

TEST_CASE("stream: usage in a chunk of its own, null in the others") {
  Served s;
  const auto events =
      post(s.port, "/v1/completions", body_of(R"("prompt":"a","stream_options":{"include_usage":true})")).events();
  REQUIRE(events.size() == 5);
  for (size_t i = 0; i < 3; ++i) CHECK(Json::parse(events[i]).at("usage").is_null());
  const Json last = Json::parse(events[3]);
  CHECK(last["choices"] == Json::array());
  CHECK(last["usage"] == Json::parse(R"({"prompt_tokens":2,"completion_tokens":2,"total_tokens":4,
      "prompt_tokens_details":{"cached_tokens":0}})"));
  CHECK(events[4] == "[DONE]");
}

TEST_CASE("stream: continuous usage counts every token") {
  Served s;
  const auto events = post(s.port, "/v1/completions",
                           body_of(R"("prompt":"a","stream_options":{"continuous_usage_stats":true},"timings":true)"))
                          .events();
  REQUIRE(events.size() == 4);
  CHECK(Json::parse(events[0])["usage"]["completion_tokens"] == 1);
  CHECK(Json::parse(events[1])["usage"]["completion_tokens"] == 2);
  CHECK(Json::parse(events[2])["usage"]["completion_tokens"] == 2);
  CHECK(Json::parse(events[2])["timings"]["total_ms"].get<double>() > 0);
}

TEST_CASE("stream: nothing is sent before the first token") {
  Served s;
  s.engine.hold();
  TestClient client(s.port);
  client.send("POST", "/v1/chat/completions", body_of(kHello));
  const FakeSequence q = s.engine.wait_for(1)[0];
  FakeEngine::token(q, 'x', "");  // half a character, say: the token is there, its text is not
  CHECK(client.receive_until("\n\n").find(R"("delta":{"role":"assistant","content":""})") != std::string::npos);
  FakeEngine::token(q, 'y', "xy");
  CHECK(client.receive_until("\n\n").find(R"("delta":{"content":"xy"})") != std::string::npos);
  FakeEngine::finish(q, FinishReason::stop);
  CHECK(client.receive_until("[DONE]").find(R"("finish_reason":"stop")") != std::string::npos);
}

TEST_CASE("stream: choices of one request come side by side") {
  Served s;
  s.engine.hold();
  TestClient client(s.port);
  client.send("POST", "/v1/completions", body_of(R"("prompt":["a","b"],"n":2)"));
  const auto q = s.engine.wait_for(4);
  for (const size_t i : {3, 0, 2, 1})
    FakeEngine::token(q[i], 'A' + static_cast<int32_t>(i), std::string(1, static_cast<char>('A' + i)));
  for (const size_t i : {1, 2, 0, 3}) FakeEngine::finish(q[i], FinishReason::length);
  const auto events = client.receive().events();
  REQUIRE(events.size() == 9);
  std::string order;
  for (size_t i = 0; i < 4; ++i) {
    const Json choice = Json::parse(events[i])["choices"][0];
    order += std::to_string(choice["index"].get<int>()) + choice["text"].get<std::string>();
  }
  CHECK(order == "3D0A2C1B");
  CHECK(events[8] == "[DONE]");
}

TEST_CASE("stream: a client that goes has all of its sequences cancelled") {
  Served s;
  s.engine.hold();
  for (const bool begun : {false, true}) {
    CAPTURE(begun);
    const size_t before = s.engine.wait_for(0).size();
    TestClient client(s.port);
    client.send("POST", "/v1/completions", body_of(R"("prompt":"a","n":3)"));
    const auto q = s.engine.wait_for(before + 3);
    if (begun) {
      FakeEngine::token(q[before], 'x', "x");
      client.receive_until("\n\n");
    }
    client.reset();
    CHECK(s.engine.wait_cancelled({q[before].id, q[before + 1].id, q[before + 2].id}));
    FakeEngine::finish(q[before], FinishReason::cancelled);  // nobody is there to be told
  }
  // A client of a whole reply, too.
  TestClient client(s.port);
  client.send("POST", "/v1/completions", R"({"prompt":"a"})");
  const auto q = s.engine.wait_for(7);
  client.reset();
  CHECK(s.engine.wait_cancelled({q[6].id}));
  for (int i = 0; i < 100 && s.server.live_requests() > 0; ++i) usleep(10'000);
  CHECK(s.server.live_requests() == 0);
}

TEST_CASE("stream: a failure in the middle is an error event without [DONE]") {
  Served s;
  s.engine.hold();
  TestClient client(s.port);
  client.send("POST", "/v1/completions", body_of(R"("prompt":"a","n":2)"));
  const auto q = s.engine.wait_for(2);
  FakeEngine::token(q[0], 'x', "x");
  client.receive_until("\r\n\r\n");
  FakeEngine::finish(q[0], FinishReason::error, "rank 1 is gone");
  CHECK(s.engine.wait_cancelled({q[1].id}));
  FakeEngine::token(q[1], 'y', "y");  // too late
  const std::string rest = client.receive_until("\r\n0\r\n\r\n");
  CHECK(rest.find(R"(data: {"error":{"message":"rank 1 is gone","type":"server_error","param":null,"code":null}})") !=
        std::string::npos);
  CHECK(rest.find("[DONE]") == std::string::npos);
  CHECK(rest.find("\"y\"") == std::string::npos);
}

TEST_CASE("a failure before the first token is a status") {
  Served s;
  s.engine.hold();
  for (const char* stream : {"true", "false"}) {
    const size_t n = s.engine.wait_for(0).size();
    TestClient client(s.port);
    client.send("POST", "/v1/completions", std::string(R"({"prompt":"a","stream":)") + stream + "}");
    FakeEngine::finish(s.engine.wait_for(n + 1)[n], FinishReason::error, "rank 1 is gone");
    const TestReply r = client.receive();
    CHECK(r.status == 500);
    CHECK(Json::parse(r.body)["error"]["message"] == "rank 1 is gone");
  }
  // A server that stops is unavailable, not broken.
  s.server.stopping();
  TestClient client(s.port);
  client.send("POST", "/v1/completions", R"({"prompt":"a"})");
  FakeEngine::finish(s.engine.wait_for(3)[2], FinishReason::error, "the server is stopping");
  const TestReply r = client.receive();
  CHECK(r.status == 503);
  CHECK(r.headers.count("retry-after") == 1);
}

TEST_CASE("timeout: 408 that is not to be tried again, or an error event") {
  Served s;
  s.engine.hold();
  TestReply r = post(s.port, "/v1/completions", R"({"prompt":"a","timeout":0.05})");
  CHECK(r.status == 408);
  CHECK(r.headers.at("x-should-retry") == "false");
  CHECK(Json::parse(r.body)["error"]["code"] == "timeout");
  CHECK(s.engine.wait_cancelled({0}));
  TestClient client(s.port);
  client.send("POST", "/v1/completions", body_of(R"("prompt":"a","timeout":0.3)"));
  FakeEngine::token(s.engine.wait_for(2)[1], 'x', "x");
  const std::string all = client.receive_until("\r\n0\r\n\r\n");
  CHECK(all.find("\"code\":\"timeout\"") != std::string::npos);
  CHECK(s.engine.wait_cancelled({1}));
}

TEST_CASE("keep-alive: comments while nothing comes, when asked for") {
  ServeSpec spec;
  spec.sse_keepalive = 0.05;
  Served s(spec);
  s.engine.hold();
  TestClient client(s.port);
  client.send("POST", "/v1/completions", body_of(R"("prompt":"a")"));
  CHECK(client.receive_until(": keep-alive\n\n").find("text/event-stream") != std::string::npos);
  const FakeSequence q = s.engine.wait_for(1)[0];
  FakeEngine::token(q, 'x', "x");
  FakeEngine::finish(q, FinishReason::length);
  CHECK(client.receive_until("[DONE]").find("\"text\":\"x\"") != std::string::npos);
}

TEST_CASE("an id that a request gives itself may be there once at a time") {
  Served s;
  s.engine.hold();
  TestClient first(s.port);
  first.send("POST", "/v1/completions", R"({"prompt":"a","request_id":"one"})");
  const FakeSequence q = s.engine.wait_for(1)[0];
  CHECK(q.request.request_id == "one");
  TestReply r = post(s.port, "/v1/completions", R"({"prompt":"a","request_id":"one"})");
  CHECK(r.status == 400);
  CHECK(Json::parse(r.body)["error"]["param"] == "request_id");
  FakeEngine::token(q, 'x', "x");
  FakeEngine::finish(q, FinishReason::length);
  r = first.receive();
  CHECK(r.status == 200);
  CHECK(r.headers.at("x-request-id") == "one");
  s.engine.refuse_with({.verdict = Admission::Verdict::queue_full, .retry_after_s = 1, .message = "full"});
  CHECK(post(s.port, "/v1/completions", R"({"prompt":"a","request_id":"one"})").status == 429);  // and free again
  s.engine.refuse_with({});
  TestClient again(s.port);
  again.send("POST", "/v1/completions", R"({"prompt":"a","request_id":"one"})");
  CHECK(s.engine.wait_for(2).size() == 2);
}

}  // namespace
}  // namespace rw
