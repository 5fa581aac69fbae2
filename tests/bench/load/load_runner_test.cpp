// The runner against a server whose replies are scripted. Times are asserted from below, where the script leaves no
// doubt (nothing can be seen before it was sent); from above only so far that a wrong clock would be noticed.
#include "libcore/bench/load/load_runner.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "tests/bench/load/fake_server.h"

using namespace rw;
using namespace rw::testing;

namespace {

constexpr double kGenerous = 10;

LoadRequest request(int64_t index, double due_s = 0) {
  LoadRequest r;
  r.index = index;
  r.due_s = due_s;
  r.body = R"({"prompt":"x","stream":true})";
  return r;
}
std::vector<LoadRequest> requests(int64_t n, double every_s = 0) {
  std::vector<LoadRequest> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(request(i, static_cast<double>(i) * every_s));
  return all;
}
LoadOptions to(const FakeServer& server) {
  LoadOptions options;
  options.target.url = server.url();
  options.request_timeout_s = kGenerous;
  return options;
}
FakeReply hello() { return fake_stream({{0, fake_text("Hello")}, {0, fake_last(3, 1)}, {0, "[DONE]"}}); }
// The outcome of one request that gets this reply.
LoadOutcome outcome_of(const FakeReply& reply, const LoadRequest& asked = request(0)) {
  const FakeServer server([&](const FakeRequest&) { return reply; });
  LoadOptions options = to(server);
  options.request_timeout_s = 5;
  const LoadRun run = run_load({asked}, options);
  REQUIRE(run.outcomes.size() == 1);
  return run.outcomes[0];
}
std::string message_of(const LoadOptions& options, const std::vector<LoadRequest>& schedule, ErrorKind kind) {
  try {
    run_load(schedule, options);
  } catch (const Error& e) {
    CHECK(e.kind() == kind);
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the times measured are the times scripted") {
  const std::vector<double> pauses = {0.05, 0.02, 0.03, 0.01};
  const FakeServer server([&](const FakeRequest&) {
    std::vector<FakePiece> events;
    for (const double pause : pauses) events.push_back({pause, fake_text("ab")});
    events.push_back({0.04, fake_last(7, 4)});
    events.push_back({0, "[DONE]"});
    return fake_stream(events);
  });
  const LoadRun run = run_load(requests(5, 0.03), to(server));
  REQUIRE(run.outcomes.size() == 5);
  for (int64_t i = 0; i < 5; ++i) {
    const LoadOutcome& o = run.outcomes[static_cast<size_t>(i)];
    CAPTURE(i);
    CHECK(o.index == i);
    CHECK(o.end == LoadEnd::ok);
    CHECK(o.error == "");
    CHECK(o.status == 200);
    CHECK(o.due_s == doctest::Approx(0.03 * static_cast<double>(i)));
    CHECK(o.sent_s >= o.due_s);
    CHECK(o.first_byte_s >= o.sent_s);
    REQUIRE(o.chunks.size() == pauses.size());
    double after = 0;
    for (size_t k = 0; k < pauses.size(); ++k) {
      after += pauses[k];
      CHECK(o.chunks[k].at_s >= o.sent_s + after);
      CHECK(o.chunks[k].at_s < o.sent_s + after + kGenerous);
      CHECK(o.chunks[k].tokens == 1);
    }
    CHECK(std::is_sorted(o.chunks.begin(), o.chunks.end(), [](auto& a, auto& b) { return a.at_s < b.at_s; }));
    CHECK(o.end_s >= o.sent_s + after + 0.04);
    CHECK(o.end_s <= run.wall_s);
    CHECK(o.text == "abababab");
    CHECK(o.usage_known);
    CHECK_FALSE(o.tokens_exact);
    CHECK(o.prompt_tokens == 7);
    CHECK(o.output_tokens == 4);
    CHECK(o.finish_reason == "length");
    CHECK(o.retries == 0);
    CHECK(o.queue_s == -1);
    CHECK(o.cached_tokens == -1);
  }
  CHECK(run.client_cpu_s > 0);
  CHECK(run.connections >= 1);
  for (const FakeRequest& r : server.requests()) CHECK(r.head.starts_with("POST /v1/completions HTTP/1.1\r\n"));
}

TEST_CASE("coordinated omission: a server that stalls 2 s shows in times from due, not in times from sent") {
  const FakeServer server([](const FakeRequest& r) {
    return fake_stream({{r.number == 0 ? 2.0 : 0.0, fake_text("a")}, {0, fake_last(1, 1)}, {0, "[DONE]"}});
  });
  LoadOptions options = to(server);
  options.max_concurrency = 1;
  const LoadRun run = run_load(requests(8, 0.2), options);
  for (const LoadOutcome& o : run.outcomes) {
    CHECK(o.end == LoadEnd::ok);
    REQUIRE(o.chunks.size() == 1);
    CHECK(o.due_s == doctest::Approx(0.2 * static_cast<double>(o.index)));
    CHECK(o.chunks[0].at_s - o.due_s >= 2 - o.due_s - 1e-9);
    if (o.index > 0) CHECK(o.chunks[0].at_s - o.sent_s < o.chunks[0].at_s - o.due_s);
    if (o.index > 0) CHECK(o.sent_s >= run.outcomes[static_cast<size_t>(o.index) - 1].end_s);
  }
}

TEST_CASE("an open loop does not wait for replies") {
  const FakeServer server([](const FakeRequest&) {
    return fake_stream({{0.3, fake_text("a")}, {0, fake_last(1, 1)}, {0, "[DONE]"}});
  });
  const LoadRun run = run_load(requests(13), to(server));
  double first_end = kGenerous, last_sent = 0;
  for (const LoadOutcome& o : run.outcomes) {
    CHECK(o.end == LoadEnd::ok);
    first_end = std::min(first_end, o.end_s);
    last_sent = std::max(last_sent, o.sent_s);
  }
  CHECK(last_sent < first_end);
  CHECK(run.connections >= 13);
}

TEST_CASE("a closed loop keeps so many under way, and keeps its connections") {
  const FakeServer server([](const FakeRequest&) {
    return fake_stream({{0.01, fake_text("a")}, {0, fake_last(1, 1)}, {0, "[DONE]"}});
  });
  LoadOptions options = to(server);
  options.closed_loop = true;
  options.max_concurrency = 3;
  const LoadRun run = run_load(requests(20, 1e6), options);  // due times count for nothing
  CHECK(run.outcomes.size() == 20);
  int64_t most = 0;
  for (const FakeRequest& r : server.requests()) most = std::max(most, r.at_once);
  CHECK(most == 3);
  CHECK(run.connections == 3);
  for (const LoadOutcome& o : run.outcomes) {
    CHECK(o.end == LoadEnd::ok);
    CHECK(o.due_s <= o.sent_s);
    CHECK(o.due_s < kGenerous);
  }
}

TEST_CASE("a conversation's turns follow each other") {
  const FakeServer server([](const FakeRequest&) { return hello(); });
  std::vector<LoadRequest> schedule = {request(10, 0.02), request(11, 0.05), request(12, 0.01), request(13, 0)};
  schedule[1].after = 10;
  schedule[2].after = 11;
  LoadOptions options = to(server);
  SUBCASE("in an open loop") {}
  SUBCASE("in a closed loop, before the next conversation begins") {
    schedule[1].due_s = schedule[2].due_s = 0;
    options.closed_loop = true;
    options.max_concurrency = 1;
  }
  const LoadRun run = run_load(schedule, options);
  REQUIRE(run.outcomes.size() == 4);
  CHECK(run.outcomes[0].index == 10);
  for (size_t i = 1; i < 3; ++i) {
    CHECK(run.outcomes[i].end == LoadEnd::ok);
    CHECK(run.outcomes[i].due_s >= run.outcomes[i - 1].end_s + schedule[i].due_s - 1e-9);
    CHECK(run.outcomes[i].sent_s >= run.outcomes[i].due_s);
  }
  if (options.closed_loop) CHECK(run.outcomes[3].sent_s >= run.outcomes[2].end_s);
  else CHECK(run.outcomes[3].sent_s < run.outcomes[0].sent_s);

  schedule[1].after = 12;
  CHECK(message_of(options, schedule, ErrorKind::input).find("request 11: expected to follow an earlier") == 0);
  schedule[1].after = 10;
  schedule[3].index = 10;
  CHECK(message_of(options, schedule, ErrorKind::input).find("request 10: expected one of this index") == 0);
}

TEST_CASE("disconnects after so many tokens, and the server sees it") {
  const FakeServer server([](const FakeRequest&) {
    std::vector<FakePiece> events(40, FakePiece{0.02, fake_text("a")});
    return fake_stream(events);
  });
  std::vector<LoadRequest> schedule = requests(3);
  schedule[0].disconnect_after_tokens = 3;
  schedule[1].disconnect_after_tokens = 1;
  schedule[2].disconnect_after_tokens = 0;
  const LoadRun run = run_load(schedule, to(server));
  REQUIRE(run.outcomes.size() == 3);
  for (const LoadOutcome& o : run.outcomes) {
    CHECK(o.end == LoadEnd::disconnected);
    CHECK(o.output_tokens == schedule[static_cast<size_t>(o.index)].disconnect_after_tokens);
  }
  CHECK(run.outcomes[0].chunks.size() == 3);
  for (const double until_s = now_s() + kGenerous; server.hang_ups() < 3 && now_s() < until_s;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(server.hang_ups() == 3);
}

TEST_CASE("429 and 503 are tried again after the time they name") {
  const FakeServer server([](const FakeRequest& r) {
    if (r.number == 0) return fake_whole(429, R"({"error":{"message":"full"}})", "Retry-After: 1\r\n");
    if (r.number == 1) return fake_whole(503, "", "retry-after-ms: 50\r\nRetry-After: 7\r\n");
    return hello();
  });
  LoadOptions options = to(server);
  options.max_retries = 2;
  const LoadOutcome o = run_load({request(0)}, options).outcomes.at(0);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.retries == 2);
  CHECK(o.status == 200);
  CHECK(o.error == "");
  CHECK(o.text == "Hello");
  const std::vector<FakeRequest> seen = server.requests();
  REQUIRE(seen.size() == 3);
  CHECK(seen[1].at_s - seen[0].at_s >= 1);
  CHECK(seen[2].at_s - seen[1].at_s >= 0.05);
  CHECK(o.chunks.at(0).at_s - o.sent_s >= 1.05);  // users waited from the first sending
  std::set<std::string> ids;
  for (const FakeRequest& r : seen) ids.insert(r.header("x-request-id"));
  CHECK(ids.size() == 3);

  const FakeServer full(
      [](const FakeRequest&) { return fake_whole(429, R"({"error":{"message":"full"}})", "retry-after-ms: 1\r\n"); });
  LoadOptions few = to(full);
  few.max_retries = 2;
  const LoadOutcome refused = run_load({request(0)}, few).outcomes.at(0);
  CHECK(refused.end == LoadEnd::refused_429);
  CHECK(refused.retries == 2);
  CHECK(full.requests().size() == 3);
}

TEST_CASE("every way a request can fail has its name") {
  const auto named = [](const LoadOutcome& o, LoadEnd end, const std::string& part) {
    CAPTURE(o.error);
    CHECK(std::string(load_end_name(o.end)) == load_end_name(end));
    CHECK(o.error.find(part) != std::string::npos);
  };
  const std::string sse = "Content-Type: text/event-stream\r\n";
  named(outcome_of(fake_whole(429, R"({"error":{"message":"queue is full","type":"x"}})")), LoadEnd::refused_429,
        "HTTP 429: queue is full");
  named(outcome_of(fake_whole(503, R"({"detail":"loading"})")), LoadEnd::refused_503, "HTTP 503: loading");
  named(outcome_of(fake_whole(400, R"({"object":"error","message":"no such model"})")), LoadEnd::http_error,
        "HTTP 400: no such model");
  named(outcome_of(fake_whole(500, "Internal Server Error\nat line 1", "")), LoadEnd::http_error,
        "HTTP 500: Internal Server Error");
  named(outcome_of(fake_whole(302, "", "Location: /x\r\n")), LoadEnd::http_error, "HTTP 302");
  named(outcome_of(fake_stream({{0, fake_text("a")}, {0, R"({"error":{"message":"out of pages","code":500}})"}})),
        LoadEnd::error_event, "out of pages");
  named(outcome_of(fake_stream({{0, fake_text("a")}, {0, R"({"choices":[{"text":)"}})), LoadEnd::malformed_stream,
        "expected a chunk of JSON");
  named(outcome_of(fake_stream({{0, fake_text("a")}})), LoadEnd::closed_mid_stream, "without a finish_reason");
  named(outcome_of({.pieces = {{0, fake_head(200, sse + "Transfer-Encoding: chunked\r\n")},
                               {0, fake_chunk("data: " + fake_text("a") + "\n\n")}},
                    .end = FakeEnd::close}),
        LoadEnd::closed_mid_stream, "before the reply's end");
  named(outcome_of({.pieces = {{0, fake_head(200, sse) + "data: " + fake_text("a") + "\n\n"}}, .end = FakeEnd::close}),
        LoadEnd::closed_mid_stream, "without a finish_reason");
  named(outcome_of({.pieces = {{0, "HTTP/1.1 200 OK\r\nConten"}}, .end = FakeEnd::close}), LoadEnd::closed_mid_stream,
        "inside the reply's head");
  named(outcome_of({.pieces = {{0, ""}}, .end = FakeEnd::close}), LoadEnd::closed_mid_stream, "without a reply");
  named(outcome_of({.pieces = {{0, "SSH-2.0-OpenSSH\r\n"}}}), LoadEnd::malformed_stream,
        "expected \"HTTP/1.1 STATUS\"");
  named(outcome_of({.pieces = {{0, "\x15\x03"}}, .end = FakeEnd::close}), LoadEnd::malformed_stream,
        "expected \"HTTP/1.1 STATUS\", found \"??\"");
  named(outcome_of(fake_whole(200, "\x1f\x8b\x08", sse + "Content-Encoding: gzip\r\n")), LoadEnd::malformed_stream,
        "expected a reply without content-encoding, found gzip");
  named(outcome_of({.pieces = {{0, fake_head(200, sse + "Transfer-Encoding: chunked\r\n") + "xyz\r\n"}}}),
        LoadEnd::malformed_stream, "expected a chunk's size");
  named(outcome_of(fake_whole(200, "<html>", "Content-Type: text/html\r\n")), LoadEnd::malformed_stream,
        "expected text/event-stream, found \"<html>\"");
  named(outcome_of(fake_whole(200, R"({"choices":[{"text":"a"}]})")), LoadEnd::malformed_stream,
        "expected text/event-stream");
  named(outcome_of(fake_whole(200, R"({"error":"bad"})")), LoadEnd::error_event, "bad");
  LoadRequest golden = request(0);
  golden.golden = "Hullo";
  named(outcome_of(hello(), golden), LoadEnd::wrong_text, "expected \"Hullo\", found \"Hello\"");
  golden.golden = "Hello";
  named(outcome_of(hello(), golden), LoadEnd::ok, "");

  const FakeServer silent([](const FakeRequest&) { return fake_stream({{30, fake_text("a")}}); });
  LoadOptions options = to(silent);
  options.request_timeout_s = 0.2;
  const LoadOutcome late = run_load({request(0)}, options).outcomes.at(0);
  named(late, LoadEnd::timed_out, "within 0.2 s");
  CHECK(late.end_s >= 0.2);
  CHECK(late.end_s < kGenerous);
}

TEST_CASE("a server that goes away after the first connection") {
  const FakeServer server(
      [](const FakeRequest&) {
        return fake_stream({{0.2, fake_text("a")}, {0, fake_last(1, 1)}});
      },
      1);
  const LoadRun run = run_load(requests(2), to(server));
  REQUIRE(run.outcomes.size() == 2);
  const bool first = run.outcomes[0].end == LoadEnd::ok;
  const LoadOutcome& gone = run.outcomes[first ? 1 : 0];
  CHECK(run.outcomes[first ? 0 : 1].end == LoadEnd::ok);
  CHECK(gone.end == LoadEnd::connect_error);
  CHECK(gone.error.find(server.url().substr(7)) != std::string::npos);
  CHECK(gone.status == 0);
}

TEST_CASE("whole replies: tokens and text, no time of the first token") {
  LoadRequest asked = request(0);
  asked.stream = false;
  const LoadOutcome o = outcome_of(
      fake_whole(
          200,
          R"({"choices":[{"index":0,"message":{"role":"assistant","content":"Hi \u00e9"},"finish_reason":"stop"}],)"
          R"("usage":{"prompt_tokens":9,"completion_tokens":2}})"),
      asked);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.chunks.empty());
  CHECK(o.text == "Hi \xC3\xA9");
  CHECK(o.output_tokens == 2);
  CHECK(o.prompt_tokens == 9);
  CHECK(outcome_of(fake_whole(200, "{}"), asked).end == LoadEnd::malformed_stream);
  CHECK(outcome_of(fake_whole(200, "nothing"), asked).end == LoadEnd::malformed_stream);
}

TEST_CASE("servers' ways to end a reply") {
  const std::string sse = "Content-Type: text/event-stream\r\n";
  const auto event = [](const std::string& data) { return "data: " + data + "\n\n"; };
  const std::string all = event(fake_text("a")) + event(fake_last(1, 1)), done = event("[DONE]");
  CHECK(outcome_of({.pieces = {{0, fake_head(200, sse) + all}}, .end = FakeEnd::close}).end == LoadEnd::ok);
  CHECK(outcome_of({.pieces = {{0, fake_head(200, sse) + all + done}}, .end = FakeEnd::close}).end == LoadEnd::ok);
  CHECK(outcome_of({.pieces = {{0, fake_head(200, sse) + all + done}, {0.05, ""}}, .end = FakeEnd::reset}).end ==
        LoadEnd::ok);
  CHECK(outcome_of(fake_stream({{0, fake_text("a")}, {0, fake_last(1, 1)}})).end == LoadEnd::ok);
  // [DONE], and then nothing: the request has ended, though the reply has not.
  const LoadOutcome o =
      outcome_of({.pieces = {{0, fake_head(200, sse + "Transfer-Encoding: chunked\r\n") + fake_chunk(all + done)}}});
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.end_s < o.sent_s + 1);
}

TEST_CASE("a connection that the server closed just then: the request goes out again by another") {
  const FakeServer server([](const FakeRequest& r) {
    if (r.number % 2 == 0) return hello();
    return FakeReply{.pieces = {{0, ""}}, .end = FakeEnd::close};  // kept alive, and then closed without a word
  });
  LoadOptions options = to(server);
  options.closed_loop = true;
  options.max_concurrency = 1;
  const LoadRun run = run_load(requests(3), options);
  for (const LoadOutcome& o : run.outcomes) CHECK(o.end == LoadEnd::ok);
  CHECK(run.outcomes.size() == 3);
  CHECK(server.requests().size() == 5);
}

TEST_CASE("names, keys and paths go out as asked") {
  const FakeServer server([](const FakeRequest& r) {
    FakeReply reply = hello();
    if (r.number == 0) return reply;
    return fake_stream({{0, fake_text("a")}, {0, fake_last(1, 1)}}, "X-Request-Id: mine\r\n");
  });
  LoadOptions options = to(server);
  options.target.url += "/gateway/v1/";
  options.target.api_key = "secret";
  options.closed_loop = true;
  options.max_concurrency = 1;
  const LoadRun run = run_load(requests(2), options);
  const std::vector<FakeRequest> seen = server.requests();
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].head.starts_with("POST /gateway/v1/completions HTTP/1.1\r\n"));
  CHECK(seen[0].header("Authorization") == "Bearer secret");
  CHECK(seen[0].header("Content-Type") == "application/json");
  CHECK(seen[0].header("Host") == server.url().substr(7));
  CHECK(seen[0].body == request(0).body);
  CHECK(seen[0].header("x-request-id").starts_with("dbench-"));
  CHECK(seen[0].header("x-request-id") != seen[1].header("x-request-id"));
  CHECK(run.outcomes[0].request_id == seen[0].header("x-request-id"));
  CHECK(run.outcomes[1].request_id == "mine");
}

TEST_CASE("stop gives up what runs and sends no more") {
  const FakeServer server([](const FakeRequest&) { return fake_stream({{30, fake_text("a")}}); });
  LoadOptions options = to(server);
  options.request_timeout_s = 60;
  int64_t running = 0;
  options.progress = [&](int64_t, int64_t now) { running = now; };
  options.stop = [&] { return running == 2; };
  std::vector<LoadRequest> schedule = requests(3);
  schedule[2].due_s = 1000;
  const LoadRun run = run_load(schedule, options);
  REQUIRE(run.outcomes.size() == 2);
  for (const LoadOutcome& o : run.outcomes) {
    CHECK(o.end == LoadEnd::disconnected);
    CHECK(o.error == "given up: the run was stopped");
  }
}

TEST_CASE("a target that cannot be") {
  LoadOptions options;
  int port = 0;
  {
    const FakeServer gone([](const FakeRequest&) { return hello(); });
    port = gone.port();
    options.target.url = gone.url();
  }
  const std::string message = message_of(options, requests(1), ErrorKind::runtime);
  CHECK(message.find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
  CHECK(message.find("Connection refused") != std::string::npos);
  options.target.url = "127.0.0.1:8000";
  CHECK(message_of(options, requests(1), ErrorKind::usage).find("expected http://") != std::string::npos);
  options.target.url = "https://127.0.0.1:8000";
  CHECK(message_of(options, requests(1), ErrorKind::usage).find("TLS") != std::string::npos);
  options.target.url = "http://127.0.0.1:1";
  options.closed_loop = true;
  CHECK(message_of(options, requests(1), ErrorKind::usage).find("closed loop") != std::string::npos);
  const FakeServer server([](const FakeRequest&) { return hello(); });
  CHECK(run_load({}, to(server)).outcomes.empty());
}
