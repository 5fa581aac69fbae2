// Replies in the forms that servers give them, each read in pieces of every size: what is read does not depend on
// where the network cut it. Expected values are counted by hand from the bytes.
#include "libcore/bench/load/reply_reader.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/bench/load/json_scan.h"
#include "libcore/bench/load/load_queue.h"

using namespace rw;

namespace {

LoadRequest streamed() {
  LoadRequest r;
  r.stream = true;
  return r;
}

// Byte i of the stream comes at the time i; the end at its length.
LoadOutcome read(std::string_view bytes, size_t piece, const LoadRequest& request = streamed()) {
  LoadOutcome outcome;
  ReplyReader reader(request, ReplyText::keep, outcome);
  reader.head(200, "text/event-stream; charset=utf-8", 0);
  for (size_t at = 0; at < bytes.size() && !reader.over(); at += piece) {
    const std::string_view part = bytes.substr(at, piece);
    reader.body(part, static_cast<double>(at + part.size()));
  }
  if (!reader.over()) reader.end(static_cast<double>(bytes.size()));
  REQUIRE(reader.over());
  return outcome;
}

std::vector<int64_t> tokens_of(const LoadOutcome& o) {
  std::vector<int64_t> tokens;
  for (const LoadChunk& c : o.chunks) tokens.push_back(c.tokens);
  return tokens;
}

// The outcome, after it has been found the same for pieces of every size.
LoadOutcome read_all_ways(std::string_view bytes, const LoadRequest& request = streamed()) {
  const LoadOutcome whole = read(bytes, 1, request);
  for (size_t piece = 2; piece <= bytes.size() + 1; ++piece) {
    const LoadOutcome o = read(bytes, piece, request);
    CAPTURE(piece);
    CHECK(o.end == whole.end);
    CHECK(o.text == whole.text);
    CHECK(tokens_of(o) == tokens_of(whole));
    CHECK(o.output_tokens == whole.output_tokens);
    CHECK(o.tokens_exact == whole.tokens_exact);
    CHECK(o.finish_reason == whole.finish_reason);
    CHECK(o.error == whole.error);
  }
  return whole;
}

using Tokens = std::vector<int64_t>;

}  // namespace

TEST_CASE("ours: token ids, continuous usage and times") {
  const std::string bytes =
      R"(data: {"id":"cmpl-1","choices":[{"index":0,"text":" to","logprobs":null,"finish_reason":null,"token_ids":[5]}],"usage":{"prompt_tokens":3,"completion_tokens":1}})"
      "\n\n"
      R"(data: {"id":"cmpl-1","choices":[{"index":0,"text":"day, ","finish_reason":null,"token_ids":[7,8,9]}],"usage":{"prompt_tokens":3,"completion_tokens":4}})"
      "\n\n"
      R"(data: {"id":"cmpl-1","choices":[{"index":0,"text":"","finish_reason":"stop","stop_reason":2,"token_ids":[2]}],"usage":{"prompt_tokens":3,"completion_tokens":5},"timings":{"queue_ms":1.5,"prefill_ms":20,"decode_ms":40.25,"preempted_ms":0,"ttft_ms":21.5,"total_ms":61.75,"preemptions":0,"cached_tokens":2}})"
      "\n\ndata: [DONE]\n\n";
  const LoadOutcome o = read_all_ways(bytes);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.text == " today, ");
  CHECK(tokens_of(o) == Tokens{1, 3, 1});
  CHECK(o.tokens_exact);
  CHECK(o.usage_known);
  CHECK(o.output_tokens == 5);
  CHECK(o.prompt_tokens == 3);
  CHECK(o.finish_reason == "stop");
  CHECK(o.queue_s == doctest::Approx(0.0015));
  CHECK(o.prefill_s == doctest::Approx(0.02));
  CHECK(o.decode_s == doctest::Approx(0.04025));
  CHECK(o.server_ttft_s == doctest::Approx(0.0215));
  CHECK(o.server_total_s == doctest::Approx(0.06175));
  CHECK(o.cached_tokens == 2);
  // In bytes one by one, an event is there with its blank line.
  CHECK(o.chunks[0].at_s == static_cast<double>(bytes.find("\n\n") + 2));
  CHECK(o.end_s == static_cast<double>(bytes.size()));
}

TEST_CASE("usage that cannot be true does not count; what came does") {
  LoadRequest asked = streamed();
  asked.max_tokens = 4;
  asked.input_tokens = 9;
  const auto reply = [](const std::string& ids, const std::string& usage) {
    return R"(data: {"choices":[{"index":0,"text":"a")" + ids + R"(,"finish_reason":null}]})" + "\n\n" +
           R"(data: {"choices":[{"index":0,"text":"b")" + ids + R"(,"finish_reason":"stop"}])" + usage + "}\n\n" +
           "data: [DONE]\n\n";
  };
  LoadOutcome o =
      read_all_ways(reply("", R"(,"usage":{"prompt_tokens":3,"completion_tokens":1000000000000000})"), asked);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.usage_doubted);
  CHECK(o.output_tokens == 2);
  CHECK(o.prompt_known);
  o = read_all_ways(reply("", R"(,"usage":{"completion_tokens":4})"), asked);  // chunks of two tokens: can be
  CHECK_FALSE(o.usage_doubted);
  CHECK(o.output_tokens == 4);
  CHECK_FALSE(o.prompt_known);  // a prompt of words, of which nobody says how many tokens it is
  asked.max_tokens = 40;
  asked.input_exact = true;
  const std::string twenty = R"(,"token_ids":[1,2,3,4,5,6,7,8,9,10])";
  o = read_all_ways(reply(twenty, R"(,"usage":{"completion_tokens":10})"), asked);
  CHECK(o.usage_doubted);
  CHECK(o.output_tokens == 20);
  CHECK(o.prompt_known);
  CHECK(o.prompt_tokens == 9);
  o = read_all_ways(reply(twenty, R"(,"usage":{"completion_tokens":20})"), asked);
  CHECK_FALSE(o.usage_doubted);
}

TEST_CASE("an orderly end of nothing is no success") {
  LoadRequest asked = streamed();
  asked.max_tokens = 4;
  for (const char* nothing : {"data: [DONE]\n\n", "data: {\"choices\":[]}\n\ndata: [DONE]\n\n",
                              "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n"}) {
    const LoadOutcome o = read_all_ways(nothing, asked);
    CHECK(o.end == LoadEnd::no_output);
    CHECK(o.error.find("4 tokens were asked for") != std::string::npos);
  }
  // A model may end at once.
  CHECK(read_all_ways("data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"stop\"}]}\n\n", asked).end ==
        LoadEnd::ok);
}

TEST_CASE("texts, indices and reasons of another type are malformed; null is not told") {
  const auto end_of = [](const std::string& members) {
    return read_all_ways("data: {\"choices\":[{" + members + "}]}\n\ndata: [DONE]\n\n").end;
  };
  CHECK(end_of(R"("index":0,"text":5)") == LoadEnd::malformed_stream);
  CHECK(end_of(R"("index":"0","text":"a")") == LoadEnd::malformed_stream);
  CHECK(end_of(R"("index":0,"text":"a","finish_reason":7)") == LoadEnd::malformed_stream);
  CHECK(end_of(R"("index":0,"delta":{"content":true})") == LoadEnd::malformed_stream);
  CHECK(end_of(R"("index":0,"delta":{"content":null},"finish_reason":null)") == LoadEnd::ok);
}

TEST_CASE("vLLM: a role first, text by deltas, usage alone in the last chunk") {
  const std::string bytes =
      "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":"
      "\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n"
      "data: "
      "{\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"},\"finish_reason\":null}]}\n\n"
      ": keep-alive\n\n"
      "data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" "
      "\\u00e9\\n\\\"\\ud83d\\ude00\"},"
      "\"finish_reason\":\"length\",\"stop_reason\":null}]}\n\n"
      "data: {\"id\":\"chatcmpl-1\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"total_tokens\":18,"
      "\"completion_tokens\":7,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";
  const LoadOutcome o = read_all_ways(bytes);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.text == "Hi \xC3\xA9\n\"\xF0\x9F\x98\x80");
  CHECK(tokens_of(o) == Tokens{1, 1});
  CHECK_FALSE(o.tokens_exact);
  CHECK(o.output_tokens == 7);
  CHECK(o.prompt_tokens == 11);
  CHECK(o.cached_tokens == 4);
}

TEST_CASE("SGLang: usage null until the end; reasoning is text to a user, not to a golden answer") {
  const std::string bytes =
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":null,\"reasoning_content\":null},"
      "\"finish_reason\":null,\"matched_stop\":null}],\"usage\":null}\r\n\r\n"
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"Hm\"},\"finish_reason\":null}],\"usage\":null}"
      "\r\n\r\n"
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Yes\"},\"finish_reason\":null}],\"usage\":null}\r\n\r\n"
      "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":2,"
      "\"completion_tokens\":2}}\r\n\r\n";  // [DONE] is missing
  const LoadOutcome o = read_all_ways(bytes);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.text == "Yes");
  CHECK(tokens_of(o) == Tokens{1, 1});
  CHECK(o.output_tokens == 2);
  CHECK_FALSE(o.tokens_exact);
}

TEST_CASE("llama.cpp: its timings; no space behind the colon, CR alone, blanks inside the JSON, several data lines") {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "data:{ \"choices\" : [ { \"finish_reason\" : null , \"text\" : \"a\" , \"index\" : 0 } ] }\r\r"
      "event: message\rid: 4\rdata:{ \"choices\":\rdata:[ { \"text\":\"b\", \"finish_reason\":\"stop\" } ],\rdata:"
      "\"timings\":{\"cache_n\":6,\"prompt_n\":1,\"prompt_ms\":12.5,\"predicted_n\":2,\"predicted_ms\":30.0}}\r\r"
      "data: [DONE]";  // without a line's end
  const LoadOutcome o = read_all_ways(bytes);
  CHECK(o.end == LoadEnd::ok);
  CHECK(o.text == "ab");
  CHECK(tokens_of(o) == Tokens{1, 1});
  CHECK_FALSE(o.usage_known);
  CHECK(o.output_tokens == 2);
  CHECK(o.cached_tokens == 6);
  CHECK(o.prefill_s == doctest::Approx(0.0125));
  CHECK(o.decode_s == doctest::Approx(0.03));
}

TEST_CASE("TGI: errors as text") {
  const LoadOutcome o = read_all_ways(
      "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":\"\"}]}\n\n"
      "data: {\"error\":\"Request failed during generation\",\"error_type\":\"generation\"}\n\n");
  CHECK(o.end == LoadEnd::error_event);
  CHECK(o.error == "Request failed during generation");
  CHECK(o.output_tokens == 1);
}

TEST_CASE("continuous usage: chunks of several tokens, tokens before the first text, an end token without text") {
  const auto event = [](const std::string& text, int64_t so_far, const std::string& finish = "null") {
    return "data: {\"choices\":[{\"index\":0,\"text\":\"" + text + "\",\"finish_reason\":" + finish +
           "}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":" + std::to_string(so_far) + "}}\n\n";
  };
  const LoadOutcome o = read_all_ways(event("", 0) + event("", 2) + event("abc", 3) + event("d", 7) + event("e", 7) +
                                      event("", 8, "\"stop\"") + "data: [DONE]\n\n");
  CHECK(o.end == LoadEnd::ok);
  CHECK(tokens_of(o) == Tokens{3, 4, 1});
  CHECK(o.tokens_exact);
  CHECK(o.output_tokens == 8);
  CHECK(o.text == "abcde");

  const LoadOutcome silent = read_all_ways(event("", 1) + event("", 2, "\"stop\"") + "data: [DONE]\n\n");
  CHECK(tokens_of(silent) == Tokens{2});
  CHECK(silent.chunks[0].at_s == static_cast<double>(event("", 1).size()));
  CHECK(silent.tokens_exact);

  const LoadOutcome none = read_all_ways(event("", 0, "\"stop\"") + "data: [DONE]\n\n");
  CHECK(none.end == LoadEnd::ok);
  CHECK(none.chunks.empty());
  CHECK(none.output_tokens == 0);
  CHECK_FALSE(none.tokens_exact);

  LoadRequest leaves = streamed();
  leaves.disconnect_after_tokens = 6;
  const LoadOutcome left = read_all_ways(event("a", 2) + event("b", 5) + event("c", 9) + event("d", 10), leaves);
  CHECK(left.end == LoadEnd::disconnected);
  CHECK(tokens_of(left) == Tokens{2, 3, 4});
  CHECK(left.output_tokens == 9);
}

TEST_CASE("several choices: all their tokens, the first one's text, whatever the order of keys") {
  const LoadOutcome o = read_all_ways(
      "data: "
      "{\"choices\":[{\"text\":\"B\",\"index\":1,\"token_ids\":[1,2]},{\"text\":\"A\",\"index\":0,\"token_ids\":[3]}]}"
      "\n\n"
      "data: {\"choices\":[{\"index\":1,\"text\":\"D\",\"token_ids\":[4],\"finish_reason\":\"stop\"}]}\n\n"
      "data: {\"choices\":[{\"index\":0,\"text\":\"C\",\"token_ids\":[5],\"finish_reason\":\"stop\"}]}\n\n");
  CHECK(o.text == "AC");
  CHECK(tokens_of(o) == Tokens{3, 1, 1});
  CHECK(o.tokens_exact);
  CHECK(o.output_tokens == 5);
}

TEST_CASE("a tool call is what its user waits for") {
  const LoadOutcome o = read_all_ways(
      "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"tool_calls\":[]}}]}\n\n"
      "data: "
      "{\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":"
      "\"{\"}}]}}]}\n\ndata: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n");
  CHECK(o.end == LoadEnd::ok);
  CHECK(tokens_of(o) == Tokens{1});
  CHECK(o.finish_reason == "tool_calls");
}

TEST_CASE("what is no JSON, or torn, is malformed; what is no event is passed over") {
  for (const char* data :
       {"{", "{\"choices\":[}", "[1]", "null", "hello", "{\"a\":1}x", "{\"a\":\"\x01\"}", "{\"a\":\"\xC3\"}",
        "{\"a\":\"\\ud83d\"}", "{\"a\":01}", "{\"a\":1e999}", "{\"a\":tru}", "{\"a\" 1}", "{,}", "{\"a\":[1,]}"}) {
    CAPTURE(data);
    const LoadOutcome o = read_all_ways("data: " + std::string(data) + "\n\n");
    CHECK(o.end == LoadEnd::malformed_stream);
    CHECK(o.error.starts_with("expected a chunk of JSON, found \""));
    CHECK(o.chunks.empty());
  }
  const std::string deep = "{\"a\":" + std::string(300, '[') + std::string(300, ']') + "}";
  CHECK(read("data: " + deep + "\n\n", 1000).end == LoadEnd::malformed_stream);
  CHECK(read_all_ways("").end == LoadEnd::closed_mid_stream);
  CHECK(read_all_ways("retry: 5\n\ndata:\n\n: x\n\n").end == LoadEnd::closed_mid_stream);
  CHECK(read_all_ways("data: {\"error\":null,\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}]}\n\n").end ==
        LoadEnd::ok);
}

TEST_CASE("the scanner takes every kind of value") {
  JsonScan scan(
      R"( {"a": -12.5e1, "b\u0041\n": [1, 2.0, 3e2, 1.5, "x", 12345678901234567890], "c": true, "d": {}, "e": []} )");
  double a = 0;
  std::vector<int64_t> b;
  std::string keys;
  scan.object([&](std::string_view key) {
    keys += key;
    if (key == "a") a = scan.number(0);
    else if (key == "bA\n") scan.array([&] { b.push_back(scan.integer(-7)); });
    else scan.skip();
  });
  CHECK(scan.finished());
  CHECK(a == -125);
  CHECK(b == std::vector<int64_t>{1, 2, 300, -7, -7, -7});
  CHECK(keys == "abA\ncde");
}

TEST_CASE("the text of an error's body") {
  CHECK(reply_error_text(R"({"error":{"message":"m","code":400}})") == "m");
  CHECK(reply_error_text(R"({"error":"text","error_type":"x"})") == "text");
  CHECK(reply_error_text(R"({"object":"error","message":"old"})") == "old");
  CHECK(reply_error_text(R"({"detail":"Not Found"})") == "Not Found");
  CHECK(reply_error_text("<html>\r\n<body>") == "<html>");
  CHECK(reply_error_text("") == "");
  CHECK(reply_error_text(std::string(500, 'x')).size() == 200);
}

TEST_CASE("the queue: by time in an open loop, a conversation first in a closed one") {
  std::vector<LoadRequest> schedule(4);
  for (size_t i = 0; i < schedule.size(); ++i) schedule[i].index = static_cast<int64_t>(i);
  schedule[0].due_s = 2;
  schedule[1].due_s = 1;
  schedule[2].after = 1;
  schedule[2].due_s = 0.25;
  schedule[3].due_s = 1.5;
  const auto order = [&](LoadQueue::Order how) {
    LoadQueue queue(schedule, how);
    std::vector<std::pair<size_t, double>> seen;
    for (double now = 10; !queue.empty(); ++now) {
      const LoadQueue::Due due = queue.front(now);
      queue.pop(due.position);
      seen.emplace_back(due.position, due.due_s);
      queue.ended(due.position, due.due_s + 0.125);
    }
    return seen;
  };
  using Seen = std::vector<std::pair<size_t, double>>;
  CHECK(order(LoadQueue::Order::by_time) == Seen{{1, 1}, {2, 1.375}, {3, 1.5}, {0, 2}});
  CHECK(order(LoadQueue::Order::followers_first) == Seen{{0, 0}, {1, 0}, {2, 0.375}, {3, 0}});
  LoadQueue queue(schedule, LoadQueue::Order::by_time);
  CHECK(queue.due_by(0.5) == 0);
  CHECK(queue.due_by(1.5) == 2);
  queue.pop(1);
  CHECK(queue.due_by(1.5) == 1);
  CHECK(queue.due_by(9) == 2);
}
