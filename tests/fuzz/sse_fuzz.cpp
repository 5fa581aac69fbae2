// A connection's bytes as a load generator reads them: a reply's head, chunks, events, JSON. Whatever comes, the reply
// ends in one of the named ways; what is read does not depend on where the network cut the bytes; what the scanner
// takes for JSON is what the JSON library takes for it, with the same text and counts.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/bench/load/reply_reader.h"
#include "libcore/net/response_parser.h"
#include "libcore/net/sse_parser.h"

using namespace rw;

namespace {

void expect(bool held) {
  if (!held) std::abort();
}

// What is left of an outcome without its times, and all that was taken from the bytes.
struct Seen {
  HttpResponseParser::Event last = HttpResponseParser::Event::more;
  std::string body;
  LoadOutcome outcome;
};

Seen read(std::string_view bytes, size_t piece, bool streamed) {
  LoadRequest request;
  request.stream = streamed;
  Seen seen;
  ReplyReader reader(request, ReplyText::keep, seen.outcome);
  HttpResponseParser parser(4000);
  using Event = HttpResponseParser::Event;
  double now = 0;
  const auto take = [&](const HttpResponseParser::Step& step) {
    seen.last = step.event;
    ++now;
    if (step.event == Event::head) {
      const std::string* type = parser.header("content-type");
      reader.head(parser.status(), type != nullptr ? *type : "", now);
    } else if (step.event == Event::body) {
      seen.body += step.body;
      reader.body(step.body, now);
    } else if (step.event == Event::done) {
      reader.end(now);
    } else if (step.event == Event::failed) {
      reader.broken(parser.started() ? LoadEnd::malformed_stream : LoadEnd::closed_mid_stream, parser.message(), now);
    }
    return step.event == Event::head || step.event == Event::body;
  };
  const auto over = [&] { return seen.last == Event::done || seen.last == Event::failed; };
  for (size_t at = 0; at < bytes.size() && !over(); at += piece) {
    std::string_view left = bytes.substr(at, piece);
    HttpResponseParser::Step step{};
    do {
      step = parser.feed(left);
      expect(step.taken <= left.size());
      left.remove_prefix(step.taken);
    } while (take(step));
    expect(left.empty() || over());
  }
  if (!over()) take(parser.finish());
  expect(over() && reader.over());
  return seen;
}

void check_same(const Seen& a, const Seen& b) {
  expect(a.last == b.last && a.body == b.body);
  const LoadOutcome &x = a.outcome, &y = b.outcome;
  expect(x.end == y.end && x.status == y.status && x.text == y.text && x.finish_reason == y.finish_reason);
  expect(x.output_tokens == y.output_tokens && x.prompt_tokens == y.prompt_tokens && x.usage_known == y.usage_known);
  expect(x.tokens_exact == y.tokens_exact && x.chunks.size() == y.chunks.size() && x.error == y.error);
  for (size_t i = 0; i < x.chunks.size(); ++i) expect(x.chunks[i].tokens == y.chunks[i].tokens);
}

void check_outcome(const LoadOutcome& o) {
  expect(o.end < LoadEnd::n_ends);
  double before = 0;
  int64_t tokens = 0;
  for (const LoadChunk& c : o.chunks) {
    expect(c.at_s >= before && c.tokens >= 0 && c.at_s <= o.end_s);
    before = c.at_s;
    tokens += c.tokens;
  }
  if (o.tokens_exact) expect(tokens == o.output_tokens);
  if (o.end == LoadEnd::ok) expect(o.status == 200 && o.error.empty());
}

// The text of choice 0 as the library reads it; its objects keep the last of several members of one name, so texts
// with such are left out.
bool has_twins(std::string_view json) {
  bool twins = false;
  std::vector<std::vector<std::string>> names;
  const Json all = Json::parse(json, [&](int, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start) names.emplace_back();
    if (event == Json::parse_event_t::object_end) names.pop_back();
    if (event == Json::parse_event_t::key) {
      auto name = value.get<std::string>();
      if (std::find(names.back().begin(), names.back().end(), name) != names.back().end()) twins = true;
      names.back().push_back(std::move(name));
    }
    return true;
  });
  return twins && all.is_object();
}

void check_json(std::string_view text) {
  // The library ends at a zero byte and takes a byte order mark.
  if (text.find('\0') != std::string_view::npos || text.starts_with("\xEF")) return;
  ReplyFields fields;
  const bool taken = read_reply_fields(text, ReplyText::keep, fields);
  std::optional<Json> json;
  try {
    json = parse_json(text, "fuzz");
  } catch (const Error&) {
  }
  // Fields of the wrong types are refused too.
  expect(taken == (json.has_value() && json->is_object() && !fields.is_odd));
  if (!taken || has_twins(text)) return;
  const auto choices = json->find("choices");
  expect((fields.choices >= 0) == (choices != json->end() && choices->is_array()));
  if (fields.choices >= 0) expect(fields.choices == static_cast<int64_t>(choices->size()));
  const auto usage = json->find("usage");
  if (usage == json->end() || !usage->is_object()) return;
  const auto told = usage->find("completion_tokens");
  const bool fits = told != usage->end() && told->is_number_integer() &&
                    !(told->is_number_unsigned() && told->get<uint64_t>() > uint64_t{INT64_MAX});
  if (fits) expect(fields.completion_tokens == told->get<int64_t>());
  if (told == usage->end()) expect(fields.completion_tokens == -1);
}

}  // namespace

extern "C" void fuzz_one(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool streamed : {true, false}) {
    const Seen whole = read(bytes, size + 1, streamed);
    check_outcome(whole.outcome);
    check_same(whole, read(bytes, 1 + size % 7, streamed));
  }
  check_json(bytes);
  // The bytes as a body: its events.
  SseParser sse;
  for (std::string_view left = bytes;;) {
    const SseParser::Step step = sse.feed(left);
    expect(step.taken <= left.size());
    left.remove_prefix(step.taken);
    if (step.event != SseParser::Event::event) break;
    expect(!step.data.empty());
    check_json(step.data);
  }
}
