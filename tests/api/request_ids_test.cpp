#include "libcore/api/request_ids.h"

#include <doctest/doctest.h>

#include <string>

#include "libcore/api/health.h"
#include "libcore/api/unknown_fields.h"

namespace rw {
namespace {

TEST_CASE("request ids: the client's when it is safe to repeat") {
  CHECK(valid_request_id("abc-1.2:3/x"));
  CHECK(valid_request_id(std::string(128, 'a')));
  CHECK_FALSE(valid_request_id(""));
  CHECK_FALSE(valid_request_id(std::string(129, 'a')));
  for (const char* bad : {"a b", "a\tb", "a\r\nset-cookie: x", "a\"b", "a\\b", "\xc3\xa4", "a\x7f"})
    CHECK_FALSE(valid_request_id(bad));
  const std::string given = "given", bad = "not valid";
  CHECK(request_id_of(&given) == "given");
  CHECK(request_id_of(&bad).size() == 32);
  CHECK(request_id_of(nullptr) != request_id_of(nullptr));
}

TEST_CASE("trace context: the caller's trace goes on with a span of our own") {
  // The example of the specification.
  const std::string given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const TraceContext trace = trace_context_of(&given);
  CHECK(trace.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736");
  CHECK(trace.parent_id == "00f067aa0ba902b7");
  CHECK(trace.span_id.size() == 16);
  CHECK(trace.span_id != trace.parent_id);
  CHECK(trace.text() == "00-4bf92f3577b34da6a3ce929d0e0e4736-" + trace.span_id + "-01");
  const std::string later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes";
  CHECK(trace_context_of(&later).parent_id == "00f067aa0ba902b7");
}

TEST_CASE("trace context: what is ill-formed begins a new trace") {
  for (const char* bad : {"", "00", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                          "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                          "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
                          "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                          "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
                          "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01x",
                          "00-4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b7-01-1"}) {
    CAPTURE(bad);
    const std::string header = bad;
    const TraceContext trace = trace_context_of(&header);
    CHECK(trace.parent_id.empty());
    CHECK(trace.trace_id.size() == 32);
  }
}

TEST_CASE("unknown fields: once each, and not without bound") {
  UnknownFields unknown;
  CHECK(unknown.fresh({"a", "b"}) == std::vector<std::string>{"a", "b"});
  CHECK(unknown.fresh({"b", "c"}) == std::vector<std::string>{"c"});
  CHECK(unknown.fresh({std::string(65, 'x')}).empty());
  size_t told = 3;
  for (int i = 0; i < 1000; ++i) told += unknown.fresh({"f" + std::to_string(i)}).size();
  CHECK(told == 256);
}

TEST_CASE("health: 200 only when a request sent now would be served") {
  HealthInputs in{.loaded = true, .state = EngineState::ready, .now = 100, .heartbeat_timeout_s = 10};
  in.stats.heartbeat_s = 1;  // idle since long
  CHECK(health_of(in).status == 200);
  CHECK(health_of(in).body() == R"({"status":"ok"})");
  in.stats.running = 1;
  CHECK(health_of(in).status == 503);
  CHECK(health_of(in).state == "stalled");
  in.stats.heartbeat_s = 90;
  CHECK(health_of(in).status == 200);
  in.stats.heartbeat_s = 89.9;
  CHECK(health_of(in).state == "stalled");
  in.draining = true;
  CHECK(health_of(in).state == "draining");
  in.state = EngineState::failed;
  in.failure = "rank 1 on host b";
  CHECK(health_of(in).body() == R"({"status":"failed","message":"rank 1 on host b"})");
  CHECK(health_of({}).state == "loading");
  CHECK(health_of({}).status == 503);
  CHECK(health_of({.loaded = true, .state = EngineState::stopped}).status == 503);
}

}  // namespace
}  // namespace rw
