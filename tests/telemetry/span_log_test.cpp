#include "libcore/telemetry/span_log.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"

using namespace rw;

namespace {

// A folder of its own, gone at the end.
struct Folder {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("rankwright_span_log_" + std::to_string(::getpid()));
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

SequenceSpans example() {
  return {
      .request_id = "cmpl-1",
      .trace_id = "0af7651916cd43dd8448eb211c80319c",
      .sequence = 1,
      .receive_s = 100,
      .spans = {{"prefill", 100.25, 100.5}, {"queue", 100.125, 100.25}, {"decode", 100.5, 101}, {"stream", 100.5, 102}},
      .counts = {{"prompt_tokens", 17}, {"cached_tokens", 16}},
      .finish_reason = "stop"};
}

}  // namespace

TEST_CASE("traceparent, by the examples of the W3C recommendation") {
  const auto p = parse_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  REQUIRE(p);
  CHECK(p->trace_id == "0af7651916cd43dd8448eb211c80319c");
  CHECK(p->parent_id == "b7ad6b7169203331");
  CHECK(p->flags == 1);
  CHECK(traceparent_header(*p) == "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  CHECK(parse_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff-what-the-future")->flags == 255);
  for (const char* bad : {"", "00", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                          "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
                          "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01"})
    CHECK_FALSE(parse_traceparent(bad));
}

TEST_CASE("the line of a sequence") {
  CHECK(spans_json(example()).dump() ==
        R"({"request_id":"cmpl-1","trace_id":"0af7651916cd43dd8448eb211c80319c","sequence":1,"finish_reason":"stop",)"
        R"("prompt_tokens":17,"cached_tokens":16,"spans":[{"name":"queue","start_ms":125.0,"end_ms":250.0},)"
        R"({"name":"prefill","start_ms":250.0,"end_ms":500.0},{"name":"stream","start_ms":500.0,"end_ms":2000.0},)"
        R"({"name":"decode","start_ms":500.0,"end_ms":1000.0}]})");
  CHECK(spans_json({.request_id = "r"}).dump() == R"({"request_id":"r","sequence":0,"spans":[]})");
}

TEST_CASE("the files: lines, and a trace that is JSON when closed and loads when not") {
  const Folder folder;
  const auto lines = folder.path / "spans.jsonl", trace = folder.path / "trace.json";
  {
    SpanLog log(lines, trace);
    CHECK(log.add(example()));
    CHECK(log.add({.request_id = "second", .receive_s = 101, .spans = {{"queue", 101, 103}}}));
    CHECK(log.add({.request_id = "third", .receive_s = 102, .spans = {{"queue", 102.5, 103}}}));
    CHECK(log.add({.request_id = "no spans"}));
    // As a killed process leaves it: all but the bracket.
    const std::string torn = read_file(trace);
    CHECK_FALSE(Json::accept(torn));
    CHECK(Json::parse(torn + "]").size() == 1 + 5 + 2 + 2);
  }
  const std::string text = read_file(lines);
  CHECK(text.substr(0, text.find('\n')) == spans_json(example()).dump());
  CHECK(std::count(text.begin(), text.end(), '\n') == 4);

  const Json events = Json::parse(read_file(trace));
  REQUIRE(events.size() == 10);
  CHECK(events[0].dump() == R"({"name":"process_name","ph":"M","pid":1,"args":{"name":"dserve"}})");
  CHECK(events[1]["name"] == "cmpl-1#1");
  CHECK(events[1]["ph"] == "X");
  CHECK(events[1]["ts"] == 100e6);
  CHECK(events[1]["dur"] == 2e6);
  CHECK(events[1]["args"]["prompt_tokens"] == 17);
  CHECK(events[1]["args"]["trace_id"] == example().trace_id);
  CHECK(events[2]["name"] == "queue");
  CHECK(events[2]["ts"] == 100.125e6);
  CHECK(events[2]["dur"] == 0.125e6);
  // The second overlaps with the first and gets a row of its own; the third follows the first.
  CHECK(events[1]["tid"] == events[5]["tid"]);
  CHECK(events[6]["tid"] != events[1]["tid"]);
  CHECK(events[8]["tid"] == events[1]["tid"]);
}

TEST_CASE("no files, and files that cannot be") {
  SpanLog none({}, {});
  CHECK(none.add(example()));
  CHECK_THROWS_AS(SpanLog("/no/such/folder/x", {}), Error);
  CHECK_THROWS_AS(SpanLog({}, "/no/such/folder/x"), Error);
}

TEST_CASE("a full disk is told, not thrown") {
  if (!std::filesystem::exists("/dev/full")) return;
  SpanLog full("/dev/full", {});
  CHECK_FALSE(full.add(example()));
}
