// Replies against JSON written by hand from the API's reference (platform.openai.com/docs/api-reference).
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "libcore/api/api_error.h"
#include "libcore/api/choice_reply.h"
#include "libcore/api/json_text.h"
#include "libcore/api/timings.h"

namespace rw {
namespace {

std::string json_of(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}
std::string logprob_text(float v) {
  std::string out;
  append_json_logprob(out, v);
  return out;
}

// An event of the byte tokenizer's tokens, one a byte.
SequenceEvent bytes_event(const std::string& bytes, const std::string& text, float logprob = -0.5F) {
  SequenceEvent e;
  e.text = text;
  for (const char c : bytes) {
    TokenOut t{.token = {.id = static_cast<unsigned char>(c), .logprob = logprob, .top = {}},
               .bytes = std::string(1, c)};
    e.tokens.push_back(t);
  }
  return e;
}

struct Fixture {
  std::unique_ptr<Tokenizer> tokenizer = byte_tokenizer();
  ReplyShape shape{
      .id = "cmpl-1", .created = 1700000000, .model = "m", .fingerprint = "fp", .tokenizer = tokenizer.get()};
  std::vector<int32_t> prompt_ids = {'h', 'i'}, stop_ids = {7};
  std::string echo = "hi";

  ChoiceReply choice(bool with_echo = false, int64_t index = 0) {
    return ChoiceReply(
        shape,
        {.index = index, .prompt_ids = &prompt_ids, .echo = with_echo ? &echo : nullptr, .stop_token_ids = &stop_ids});
  }
};

Json whole(ChoiceReply& choice) {
  std::string out;
  choice.append_whole(out);
  return Json::parse(out);
}
// The JSON of one "data: ...\n\n".
Json data_of(const std::string& event) {
  REQUIRE(event.starts_with("data: "));
  REQUIRE(event.ends_with("\n\n"));
  CHECK(event.find('\n') == event.size() - 2);
  return Json::parse(event.substr(6));
}

TEST_CASE("JSON text: strings are escaped and always valid") {
  CHECK(json_of("") == "\"\"");
  CHECK(json_of("a\"b\\c") == R"("a\"b\\c")");
  CHECK(json_of("\n\r\t\x01\x1f") == R"("\n\r\t\u0001\u001f")");
  CHECK(json_of(std::string_view("\0", 1)) == R"("\u0000")");
  CHECK(json_of("\xf0\x9f\xa6\x99\xe4\xbd\xa0") == "\"\xf0\x9f\xa6\x99\xe4\xbd\xa0\"");
  CHECK(json_of("a\xf0\x9f\xa6") == "\"a\xef\xbf\xbd\"");
  CHECK(json_of("\xff\xfe\"") == "\"\xef\xbf\xbd\xef\xbf\xbd\\\"\"");
  for (int c = 0; c < 256; ++c) {
    const std::string text = std::string("x") + static_cast<char>(c) + "y";
    CHECK_NOTHROW(CHECK(Json::parse(json_of(text)).is_string()));
    if (c < 128) CHECK(Json::parse(json_of(text)).get<std::string>() == text);
  }
}

TEST_CASE("JSON text: a logprob is a number whatever it is") {
  CHECK(logprob_text(-0.5F) == "-0.5");
  CHECK(logprob_text(-std::numeric_limits<float>::infinity()) == "-9999");
  CHECK(logprob_text(std::numeric_limits<float>::quiet_NaN()) == "-9999");
  CHECK(logprob_text(-20000.F) == "-9999");
  CHECK(logprob_text(std::numeric_limits<float>::infinity()) == "-9999");
  for (const float v : {-1e-30F, -0.1F, -3.4028235e38F, 0.0F, -0.0F, -123.456F}) {
    const double back = Json::parse(logprob_text(v)).get<double>();
    CHECK(static_cast<float>(back) == std::max(v, -9999.0F));
  }
}

TEST_CASE("error body: OpenAI's shape") {
  CHECK(error_body({.status = 400, .message = "n: \"x\"", .param = "n"}) ==
        R"({"error":{"message":"n: \"x\"","type":"invalid_request_error","param":"n","code":null}})");
  CHECK(error_body({.status = 404, .message = "no", .param = "model", .code = "model_not_found"}) ==
        R"({"error":{"message":"no","type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  CHECK(Json::parse(error_body(404, "x"))["error"]["type"] == "invalid_request_error");
  CHECK(Json::parse(error_body(429, "x"))["error"]["type"] == "rate_limit_error");
  CHECK(Json::parse(error_body(503, "x"))["error"]["type"] == "unavailable_error");
  CHECK(Json::parse(error_body(500, "x"))["error"]["type"] == "server_error");
}

TEST_CASE("refusal headers: whole seconds upwards, milliseconds beside them") {
  HttpHeaders headers;
  append_refusal_headers(headers, {.status = 429, .retry_after_s = 1.2345});
  CHECK(headers == HttpHeaders{{"retry-after", "2"}, {"retry-after-ms", "1235"}});
  headers.clear();
  append_refusal_headers(headers, {.status = 429, .retry_after_s = 0.01});
  CHECK(headers == HttpHeaders{{"retry-after", "1"}, {"retry-after-ms", "10"}});
  headers.clear();
  append_refusal_headers(headers, {.status = 400});
  CHECK(headers.empty());
  append_refusal_headers(headers, {.status = 401});
  CHECK(headers == HttpHeaders{{"www-authenticate", "Bearer"}});
}

TEST_CASE("completion: a whole choice") {
  Fixture f;
  ChoiceReply choice = f.choice();
  CHECK(choice.take(bytes_event("ab", "ab")));
  SequenceEvent end = bytes_event("c", "c");
  end.finish = FinishReason::length;
  CHECK(choice.take(end));
  CHECK(choice.finished());
  CHECK(choice.completion_tokens() == 3);
  CHECK(whole(choice) ==
        Json::parse(R"({"index":0,"text":"abc","logprobs":null,"finish_reason":"length","stop_reason":null})"));
}

TEST_CASE("chat: a whole choice") {
  Fixture f;
  f.shape.chat = true;
  ChoiceReply choice = f.choice(false, 3);
  SequenceEvent end = bytes_event("a", "a");
  end.finish = FinishReason::stop;
  end.stop_string = "x\"";
  choice.take(end);
  CHECK(whole(choice) == Json::parse(R"({"index":3,"message":{"role":"assistant","content":"a","refusal":null},
      "logprobs":null,"finish_reason":"stop","stop_reason":"x\""})"));
}

TEST_CASE("stop_reason: a named id, not the model's own end") {
  for (const auto& [id, expected] : {std::pair{7, "7"}, std::pair{256, "null"}}) {
    Fixture f;
    ChoiceReply choice = f.choice();
    SequenceEvent end;
    end.finish = FinishReason::stop;
    end.stop_token = id;
    choice.take(end);
    CHECK(whole(choice)["stop_reason"] == Json::parse(expected));
  }
}

TEST_CASE("chat: chunks bring the role with the first text, never before") {
  Fixture f;
  f.shape.chat = true;
  f.shape.id = "chatcmpl-1";
  const SseChunks chunks(f.shape);
  ChoiceReply choice = f.choice();
  CHECK_FALSE(choice.take(SequenceEvent{}));  // nothing to show
  choice.take(bytes_event("a", "a"));
  CHECK(data_of(choice.chunk(chunks, nullptr, "")) ==
        Json::parse(R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",
          "system_fingerprint":"fp","choices":[{"index":0,"delta":{"role":"assistant","content":"a"},"logprobs":null,
          "finish_reason":null}]})"));
  SequenceEvent end = bytes_event("b", "b");
  end.finish = FinishReason::stop;
  choice.take(end);
  CHECK(data_of(choice.chunk(chunks, nullptr, "")) ==
        Json::parse(R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m",
          "system_fingerprint":"fp","choices":[{"index":0,"delta":{"content":"b"},"logprobs":null,
          "finish_reason":"stop","stop_reason":null}]})"));
}

TEST_CASE("completion: chunks with usage") {
  Fixture f;
  f.shape.include_usage = true;
  const SseChunks chunks(f.shape);
  ChoiceReply choice = f.choice();
  choice.take(bytes_event("a", "a"));
  CHECK(data_of(choice.chunk(chunks, nullptr, "")) ==
        Json::parse(R"({"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m",
          "system_fingerprint":"fp","choices":[{"index":0,"text":"a","logprobs":null,"finish_reason":null}],
          "usage":null})"));
  choice.take(bytes_event("b", "b"));
  const ReplyUsage so_far{.prompt_tokens = 5, .completion_tokens = 2, .cached_tokens = 4};
  CHECK(data_of(choice.chunk(chunks, &so_far, ""))["usage"] ==
        Json::parse(R"({"prompt_tokens":5,"completion_tokens":2,"total_tokens":7,
          "prompt_tokens_details":{"cached_tokens":4}})"));
  CHECK(data_of(chunks.usage(so_far, ""))["choices"] == Json::array());
}

TEST_CASE("chat logprobs: bytes are exact where the text cannot be") {
  Fixture f;
  f.shape.chat = f.shape.logprobs = true;
  ChoiceReply choice = f.choice();
  SequenceEvent e = bytes_event("\xe4\xbd", "", -1.0F);
  e.tokens[0].token.top = {{.id = 0xe4, .logprob = -1.0F},
                           {.id = 256, .logprob = -std::numeric_limits<float>::infinity()}};
  choice.take(e);
  e = bytes_event("\xa0", "\xe4\xbd\xa0", -2.0F);
  e.finish = FinishReason::length;
  choice.take(e);
  CHECK(whole(choice)["logprobs"] == Json::parse(R"({"content":[
      {"token":"\ufffd","logprob":-1.0,"bytes":[228],"top_logprobs":[
        {"token":"\ufffd","logprob":-1.0,"bytes":[228]},
        {"token":"<|endoftext|>","logprob":-9999.0,"bytes":[60,124,101,110,100,111,102,116,101,120,116,124,62]}]},
      {"token":"\ufffd","logprob":-1.0,"bytes":[189],"top_logprobs":[]},
      {"token":"\ufffd","logprob":-2.0,"bytes":[160],"top_logprobs":[]}],"refusal":null})"));
}

TEST_CASE("completion logprobs: four lists of one length, offsets in characters") {
  Fixture f;
  f.shape.logprobs = true;
  ChoiceReply choice = f.choice();
  SequenceEvent e = bytes_event("\xe4\xbd\xa0z", "\xe4\xbd\xa0z", -1.0F);
  e.tokens[3].token.top = {{.id = 'y', .logprob = -0.25F}, {.id = 'z', .logprob = -1.0F}};
  e.finish = FinishReason::length;
  choice.take(e);
  CHECK(whole(choice)["logprobs"] == Json::parse(R"({
      "tokens":["bytes:\\xe4","bytes:\\xbd","bytes:\\xa0","z"],
      "token_logprobs":[-1.0,-1.0,-1.0,-1.0],
      "top_logprobs":[{"bytes:\\xe4":-1.0},{"bytes:\\xbd":-1.0},{"bytes:\\xa0":-1.0},{"y":-0.25,"z":-1.0}],
      "text_offset":[0,0,0,1]})"));
}

TEST_CASE("completion logprobs: special tokens take no room, and offsets go on across chunks") {
  Fixture f;
  f.shape.logprobs = true;
  const SseChunks chunks(f.shape);
  ChoiceReply choice = f.choice();
  SequenceEvent e = bytes_event("ab", "ab", -1.0F);
  e.tokens.insert(e.tokens.begin() + 1,
                  TokenOut{.token = {.id = 256, .logprob = -3.0F, .top = {}}, .bytes = "<|endoftext|>"});
  choice.take(e);
  CHECK(data_of(choice.chunk(chunks, nullptr, ""))["choices"][0]["logprobs"]["text_offset"] == Json::parse("[0,1,1]"));
  choice.take(bytes_event("c", "c"));
  const Json second = data_of(choice.chunk(chunks, nullptr, ""))["choices"][0]["logprobs"];
  CHECK(second["text_offset"] == Json::parse("[2]"));
  CHECK(second["tokens"] == Json::parse(R"(["c"])"));
}

TEST_CASE("echo: the prompt's text and scores come first") {
  Fixture f;
  f.shape.logprobs = true;
  ChoiceReply choice = f.choice(/*with_echo=*/true);
  SequenceEvent scores;
  scores.prompt = bytes_event("i", "", -4.0F).tokens;
  scores.finish = FinishReason::none;
  CHECK(choice.take(scores));
  SequenceEvent end = bytes_event("!", "!", -1.0F);
  end.finish = FinishReason::length;
  choice.take(end);
  const Json json = whole(choice);
  CHECK(json["text"] == "hi!");
  CHECK(json["logprobs"] == Json::parse(R"({"tokens":["h","i","!"],"token_logprobs":[null,-4.0,-1.0],
      "top_logprobs":[null,{"i":-4.0},{"!":-1.0}],"text_offset":[0,1,2]})"));
  CHECK(choice.completion_tokens() == 1);
}

TEST_CASE("echo: without new tokens, without scores") {
  Fixture f;
  ChoiceReply choice = f.choice(/*with_echo=*/true);
  SequenceEvent end;
  end.finish = FinishReason::length;
  choice.take(end);
  CHECK(whole(choice) ==
        Json::parse(R"({"index":0,"text":"hi","logprobs":null,"finish_reason":"length","stop_reason":null})"));
}

TEST_CASE("token ids: where vLLM puts them") {
  Fixture f;
  f.shape.token_ids = true;
  const SseChunks chunks(f.shape);
  ChoiceReply choice = f.choice();
  choice.take(bytes_event("a", "a"));
  const Json first = data_of(choice.chunk(chunks, nullptr, ""))["choices"][0];
  CHECK(first["token_ids"] == Json::parse("[97]"));
  CHECK(first["prompt_token_ids"] == Json::parse("[104,105]"));
  choice.take(bytes_event("b", "b"));
  const Json second = data_of(choice.chunk(chunks, nullptr, ""))["choices"][0];
  CHECK(second["token_ids"] == Json::parse("[98]"));
  CHECK_FALSE(second.contains("prompt_token_ids"));
}

TEST_CASE("timings: intervals between what was reached") {
  const SequenceTimes times{.received = 10,
                            .queued = 10.5,
                            .scheduled = 12,
                            .first_token = 15,
                            .last_token = 20,
                            .preempted_s = 1.5,
                            .n_preemptions = 2};
  const Timings t = timings_of(times);
  CHECK(t.queue_s == 1.5);
  CHECK(t.prefill_s == 3);
  CHECK(t.decode_s == 5);
  CHECK(t.ttft_s == 5);
  CHECK(t.total_s == 10);
  CHECK(timings_of(SequenceTimes{.received = 10, .queued = 10.5}) == Timings{});
  Timings all = t;
  take_longest(all, {.queue_s = 9, .decode_s = 1, .preemptions = 1});
  CHECK(all.queue_s == 9);
  CHECK(all.decode_s == 5);
  CHECK(all.preemptions == 3);
  CHECK(Json::parse(timings_json(t, 4)) == Json::parse(R"({"queue_ms":1500.0,"prefill_ms":3000.0,"decode_ms":5000.0,
      "preempted_ms":1500.0,"ttft_ms":5000.0,"total_ms":10000.0,"preemptions":2,"cached_tokens":4})"));
}

}  // namespace
}  // namespace rw
