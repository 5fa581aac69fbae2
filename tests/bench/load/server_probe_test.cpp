#include "libcore/bench/load/server_probe.h"

#include <doctest/doctest.h>

#include <cmath>

#include "libcore/base/error.h"
#include "libcore/bench/load/server_spans.h"

using namespace rw;

namespace {

std::vector<ServerLevel> levels_of(const char* text) { return server_levels(MetricsText::parse(text, "test")); }

double level(const std::vector<ServerLevel>& levels, const std::string& name) {
  for (const ServerLevel& l : levels)
    if (l.name == name) return l.value;
  return -1;
}

std::string message_of(const auto& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("models: the first, the wanted one, ours") {
  const char* two =
      R"({"object":"list","data":[{"id":"a","owned_by":"vllm","max_model_len":99},{"id":"b","owned_by":"rankwright"}]})";
  CHECK(parse_models(two, "", "w").id == "a");
  CHECK(parse_models(two, "", "w").max_model_len == 99);
  CHECK_FALSE(parse_models(two, "", "w").is_ours);
  CHECK(parse_models(two, "b", "w").is_ours);
  CHECK(parse_models(two, "b", "w").max_model_len == 0);
  CHECK(message_of([&] { parse_models(two, "c", "w"); }).find("a, b") != std::string::npos);
  for (const char* bad : {"", "[]", "{}", R"({"data":[]})", R"({"data":[3]})", R"({"data":[{"name":"x"}]})"})
    CHECK_THROWS_AS(parse_models(bad, "", "w"), Error);
}

TEST_CASE("levels: of each make of server, pages of the prefix cache are not in use") {
  const std::vector<ServerLevel> ours = levels_of(
      "rankwright_sequences_running{model_name=\"m\"} 3\n"
      "rankwright_sequences_waiting 2\n"
      "rankwright_requests_live 5\n"
      "rankwright_kv_pages 100\n"
      "rankwright_kv_free_pages 60\n"
      "rankwright_kv_cached_pages 30\n"
      "vllm:num_requests_running 77\n");
  CHECK(level(ours, "rankwright_sequences_running") == 3);
  CHECK(level(ours, "rankwright_requests_live") == 5);
  CHECK(level(ours, "rankwright_kv_pages in use") == 10);
  CHECK(level(ours, "vllm:num_requests_running") == -1);
  const std::vector<ServerLevel> vllm = levels_of(
      "vllm:num_requests_running{engine=\"0\"} 1\n"
      "vllm:num_requests_running{engine=\"1\"} 2\n"
      "vllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n");
  CHECK(level(vllm, "vllm:num_requests_running") == 3);
  CHECK(level(vllm, "vllm:kv_cache_usage_perc") == 0.25);
  CHECK(level(levels_of("llamacpp:requests_processing 4\n"), "llamacpp:requests_processing") == 4);
  CHECK(levels_of("up 1\n").empty());
}

TEST_CASE("leaks: what is above its level, or gone") {
  const std::vector<ServerLevel> before = {{"a", 0}, {"b", 2}, {"c", 0.5}};
  CHECK(leaks_between(before, before).empty());
  CHECK(leaks_between(before, {{"a", 0}, {"b", 1}, {"c", 0.5}, {"d", 9}}).empty());
  const std::vector<Leak> leaks = leaks_between(before, {{"a", 1}, {"c", 0.4}});
  REQUIRE(leaks.size() == 2);
  CHECK(leaks[0].name == "a");
  CHECK(leaks[0].after == 1);
  CHECK(std::isnan(leaks[1].after));
  CHECK(leaks_text(leaks) == "a 0 before, 1 after, b 2 before, gone after");
}

TEST_CASE("spans are joined by request id") {
  LoadRun run;
  for (const char* id : {"x", "y", "z"}) {
    LoadOutcome o;
    o.request_id = id;
    o.sent_s = 1;
    o.end_s = 1.5;
    run.outcomes.push_back(o);
  }
  run.outcomes[2].end = LoadEnd::timed_out;  // does not count
  const char* lines =
      "{\"request_id\":\"w\",\"spans\":[]}\n"
      "{\"request_id\":\"x\",\"spans\":[{\"name\":\"queue\",\"start_ms\":1,\"end_ms\":21},"
      "{\"name\":\"stream\",\"start_ms\":21,\"end_ms\":480}]}\n"
      "{\"request_id\":\"x\",\"sequence\":1,\"spans\":[{\"name\":\"queue\",\"start_ms\":1,\"end_ms\":99}]}\n"
      "{\"request_id\":\"y\",\"spa";
  const SpanJoin join = join_server_spans(run, lines, "s");
  CHECK(join.joined == 1);
  CHECK(join.missing == 1);
  REQUIRE(join.spans.size() == 3);
  CHECK(join.spans[0].first == "queue");
  CHECK(join.spans[0].second.mean == doctest::Approx(20));
  CHECK(join.spans[2].first == "network");
  CHECK(join.spans[2].second.mean == doctest::Approx(20));
  CHECK(message_of([&] { join_server_spans(run, "{}\n", "s"); }).find("s:1") != std::string::npos);
}
