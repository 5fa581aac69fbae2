// The stream's form against the examples of WHATWG HTML 9.2.6.
#include "libcore/net/sse_parser.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

using namespace rw;

namespace {

std::vector<std::string> events(std::string_view bytes, size_t piece) {
  SseParser parser;
  std::vector<std::string> all;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    std::string part(bytes.substr(at, piece));  // gone before the next
    std::string_view left = part;
    while (true) {
      const SseParser::Step step = parser.feed(left);
      CHECK(step.taken <= left.size());
      left.remove_prefix(step.taken);
      if (step.event == SseParser::Event::more) break;
      REQUIRE(step.event == SseParser::Event::event);
      all.emplace_back(step.data);
    }
    CHECK(left.empty());
  }
  if (const SseParser::Step last = parser.finish(); last.event == SseParser::Event::event) all.emplace_back(last.data);
  CHECK(parser.finish().event == SseParser::Event::more);
  return all;
}

using Events = std::vector<std::string>;

}  // namespace

TEST_CASE("events of every form, in pieces of every size") {
  struct Case {
    std::string bytes;
    Events expected;
  };
  const std::vector<Case> cases = {
      {"data: YHOO\ndata: +2\ndata: 10\n\n", {"YHOO\n+2\n10"}},
      {": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n",
       {"first event", "second event", " third event"}},
      {"data\n\ndata\ndata\n\ndata:", {"\n"}},
      {"data:test\n\ndata: test\n\n", {"test", "test"}},
      {"event: add\ndata: 73857293\n\nevent: remove\ndata: 2153\n\n", {"73857293", "2153"}},
      {"data: a\r\n\r\ndata: b\r\rdata: c\n\r\ndata: d\r\n\n", {"a", "b", "c", "d"}},
      {"\xEF\xBB\xBF"
       "data: marked\n\n",
       {"marked"}},
      {"\n\n\r\n\rdata: after blanks\n\n", {"after blanks"}},
      {"data: [DONE]", {"[DONE]"}},
      {"data: x\ndata", {"x\n"}},
      {"data: x\n", {"x"}},
      {"datum: x\n\nDATA: y\n\n data: z\n\n", {}},
      {"", {}},
  };
  for (const Case& c : cases)
    for (size_t piece = 1; piece <= c.bytes.size() + 1; ++piece) {
      CAPTURE(c.bytes);
      CAPTURE(piece);
      CHECK(events(c.bytes, piece) == c.expected);
    }
}

TEST_CASE("an event without end is refused at the bound") {
  for (const std::string begin : {"data: ", "data: 1\ndata: ", ""}) {
    SseParser parser(100);
    CHECK(parser.feed(begin + std::string(60, 'x')).event == SseParser::Event::more);
    CHECK(parser.feed(std::string(60, 'x')).event == SseParser::Event::failed);
  }
  SseParser lines(100);
  SseParser::Step step{};
  for (int i = 0; i < 40 && step.event == SseParser::Event::more; ++i) step = lines.feed("data: 12345\n");
  CHECK(step.event == SseParser::Event::failed);
  SseParser again(100);
  for (int i = 0; i < 40; ++i) CHECK(again.feed("data: 12345\n\n").event == SseParser::Event::event);
}

TEST_CASE("begun again") {
  SseParser parser;
  parser.feed("data: torn");
  parser.reset();
  const SseParser::Step step = parser.feed(
      "\xEF\xBB\xBF"
      "data: whole\n\n");
  CHECK(step.data == "whole");
}
