// Requests and whole replies over sockets.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/api/served_fixture.h"

namespace rw {
namespace {

std::string body_of(const std::string& fields) { return R"({"model":"m",)" + fields + "}"; }
std::vector<int32_t> ids_of(const std::string& bytes) {
  std::vector<int32_t> ids;
  for (const char c : bytes) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

TEST_CASE("completion: a whole reply") {
  Served s;
  const TestReply r =
      post(s.port, "/v1/completions", body_of(R"("prompt":"hello","max_tokens":2)"), {{"X-Request-Id", "abc"}});
  CHECK(r.status == 200);
  CHECK(r.headers.at("content-type") == "application/json");
  CHECK(r.headers.at("x-request-id") == "abc");
  Json json = Json::parse(r.body);
  CHECK(json["created"].is_number_integer());
  json.erase("created");
  CHECK(json == Json::parse(R"({"id":"cmpl-abc","object":"text_completion","model":"m",
      "system_fingerprint":"0123456789abcdef",
      "choices":[{"index":0,"text":"ok","logprobs":null,"finish_reason":"length","stop_reason":null}],
      "usage":{"prompt_tokens":6,"completion_tokens":2,"total_tokens":8,"prompt_tokens_details":{"cached_tokens":0}}})"));
  const SequenceRequest q = s.engine.wait_for(1)[0].request;
  CHECK(q.request_id == "abc");
  CHECK(q.prompt.front() == 256);  // one BOS
  CHECK(std::vector<int32_t>(q.prompt.begin() + 1, q.prompt.end()) == ids_of("hello"));
  CHECK(q.max_tokens == 2);
  CHECK(q.prompt_logprobs == -1);
  CHECK(q.received_s > 0);
}

TEST_CASE("completion: a prompt that begins with BOS does not get a second one") {
  Served s;
  post(s.port, "/v1/completions", body_of(R"("prompt":"<|endoftext|>a")"));
  post(s.port, "/v1/completions", body_of(R"("prompt":"a","add_special_tokens":false)"));
  post(s.port, "/v1/completions", body_of(R"("prompt":[97])"));
  const auto seen = s.engine.wait_for(3);
  CHECK(seen[0].request.prompt == std::vector<int32_t>{256, 97});
  CHECK(seen[1].request.prompt == std::vector<int32_t>{97});
  CHECK(seen[2].request.prompt == std::vector<int32_t>{97});  // ids are taken as they are
}

TEST_CASE("completion: choices are prompt times n, seeds count up") {
  Served s;
  const TestReply r = post(s.port, "/v1/completions", body_of(R"("prompt":["a","bc"],"n":2,"seed":10,"max_tokens":2)"));
  const Json json = Json::parse(r.body);
  REQUIRE(json["choices"].size() == 4);
  for (int i = 0; i < 4; ++i) CHECK(json["choices"][static_cast<size_t>(i)]["index"] == i);
  CHECK(json["usage"]["prompt_tokens"] == 2 + 3);  // each prompt once
  CHECK(json["usage"]["completion_tokens"] == 8);
  const auto seen = s.engine.wait_for(4);
  for (size_t i = 0; i < 4; ++i) {
    CHECK(seen[i].request.choice == static_cast<int64_t>(i));
    CHECK(seen[i].request.sampling.seed == 10 + i % 2);
    CHECK(seen[i].request.prompt.size() == (i < 2 ? 2 : 3));
  }
}

TEST_CASE("completion: without a seed they are random, unless the server has one") {
  Served s;
  for (int i = 0; i < 2; ++i) post(s.port, "/v1/completions", body_of(R"("prompt":"a")"));
  const auto seen = s.engine.wait_for(2);
  CHECK(seen[0].request.sampling.seed != seen[1].request.sampling.seed);
  ServeSpec spec;
  spec.seed = 77;
  Served seeded(spec);
  post(seeded.port, "/v1/completions", body_of(R"("prompt":"a")"));
  CHECK(seeded.engine.wait_for(1)[0].request.sampling.seed == 77);
}

TEST_CASE("completion: the room for an answer") {
  Served s;                        // 64 tokens
  const std::string p60(59, 'a');  // and BOS
  CHECK(post(s.port, "/v1/completions", body_of("\"prompt\":\"" + p60 + "\"")).status == 200);
  CHECK(s.engine.wait_for(1)[0].request.max_tokens == 4);  // the default is cut to what fits
  CHECK(post(s.port, "/v1/completions", body_of("\"max_tokens\":4,\"prompt\":\"" + p60 + "\"")).status == 200);
  TestReply r = post(s.port, "/v1/completions", body_of("\"max_tokens\":5,\"prompt\":\"" + p60 + "\""));
  CHECK(r.status == 400);
  CHECK(Json::parse(r.body)["error"]["code"] == "context_length_exceeded");
  CHECK(Json::parse(r.body)["error"]["param"] == "max_tokens");
  const std::string p64(63, 'a'), p65(64, 'a');
  r = post(s.port, "/v1/completions", body_of("\"prompt\":\"" + p64 + "\""));
  CHECK(r.status == 400);
  CHECK(Json::parse(r.body)["error"]["param"] == "prompt");
  CHECK(post(s.port, "/v1/completions", body_of("\"max_tokens\":0,\"prompt\":\"" + p64 + "\"")).status == 200);
  CHECK(post(s.port, "/v1/completions", body_of("\"max_tokens\":0,\"prompt\":\"" + p65 + "\"")).status == 400);
  r = post(s.port, "/v1/completions", body_of("\"truncate_prompt_tokens\":3,\"prompt\":\"" + p65 + "bcd\""));
  CHECK(r.status == 200);
  CHECK(s.engine.wait_for(4)[3].request.prompt == ids_of("bcd"));
  // Hundreds of times too long: told without tokenizing it all.
  r = post(s.port, "/v1/completions", body_of("\"prompt\":\"" + std::string(1'000'000, 'a') + "\""));
  CHECK(r.status == 400);
  CHECK(Json::parse(r.body)["error"]["code"] == "context_length_exceeded");
}

TEST_CASE("completion: echo asks for the prompt's scores, and gives the prompt back") {
  Served s;
  s.engine.set_answer("");
  TestReply r = post(s.port, "/v1/completions", body_of(R"("prompt":"hi","echo":true,"max_tokens":0,"logprobs":2)"));
  CHECK(r.status == 200);
  CHECK(Json::parse(r.body)["choices"][0]["text"] == "hi");
  CHECK(Json::parse(r.body)["usage"]["completion_tokens"] == 0);
  r = post(s.port, "/v1/completions", body_of(R"("prompt":[104,256,228,105],"echo":true,"max_tokens":0)"));
  CHECK(Json::parse(r.body)["choices"][0]["text"] == "h\xef\xbf\xbdi");
  const auto seen = s.engine.wait_for(2);
  CHECK(seen[0].request.prompt_logprobs == 2);
  CHECK(seen[0].request.max_tokens == 0);
  CHECK_FALSE(seen[0].request.cache_prompt);
  CHECK(seen[1].request.prompt_logprobs == -1);
}

TEST_CASE("completion: what is asked reaches the engine") {
  Served s;
  post(s.port, "/v1/completions",
       body_of(R"("prompt":"a","temperature":0,"top_k":3,"logprobs":4,"stop":["x"],"stop_token_ids":[9],
         "include_stop_str_in_output":true,"ignore_eos":true,"min_tokens":2,"cache_salt":"s","cache_prompt":false,
         "priority":-5,"skip_special_tokens":false,"logit_bias":{"5":1},"presence_penalty":1)"));
  const SequenceRequest q = s.engine.wait_for(1)[0].request;
  CHECK(q.sampling.greedy());
  CHECK(q.sampling.top_k == 3);
  CHECK(q.sampling.top_logprobs == 4);
  CHECK(q.sampling.min_tokens == 2);
  CHECK(q.sampling.presence_penalty == 1);
  CHECK(q.sampling.logit_bias.size() == 1);
  CHECK(q.stop == std::vector<std::string>{"x"});
  CHECK(q.stop_token_ids == std::vector<int32_t>{9});
  CHECK(q.include_stop);
  CHECK(q.ignore_eos);
  CHECK(q.cache_salt == "s");
  CHECK_FALSE(q.cache_prompt);
  CHECK(q.priority == -5);
  CHECK_FALSE(q.skip_special_tokens);
}

TEST_CASE("chat: a whole reply") {
  Served s;
  const TestReply r = post(s.port, "/v1/chat/completions", body_of(R"("messages":[{"role":"user","content":"hi"}])"));
  CHECK(r.status == 200);
  Json json = Json::parse(r.body);
  CHECK(json["id"].get<std::string>().starts_with("chatcmpl-"));
  CHECK(json["object"] == "chat.completion");
  CHECK(json["choices"] == Json::parse(R"([{"index":0,"message":{"role":"assistant","content":"ok","refusal":null},
      "logprobs":null,"finish_reason":"length","stop_reason":null}])"));
  const SequenceRequest q = s.engine.wait_for(1)[0].request;
  std::vector<int32_t> expected = ids_of("<user>hi</user><assistant>");
  expected.insert(expected.begin(), 256);  // the template's own, once
  CHECK(q.prompt == expected);
  CHECK(q.max_tokens == 64 - static_cast<int64_t>(expected.size()));
}

TEST_CASE("chat: what templates do") {
  Served s;
  TestReply r = post(s.port, "/v1/chat/completions", body_of(R"("messages":[{"role":"bad","content":"hi"}])"));
  CHECK(r.status == 400);
  CHECK(Json::parse(r.body)["error"]["message"].get<std::string>().find("roles must alternate") != std::string::npos);
  r = post(s.port, "/apply-template",
           R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"So it"}],
               "continue_final_message":true,"tools":[{}]})");
  CHECK(Json::parse(r.body)["prompt"] == "<|endoftext|>tools:1<user>a</user><assistant>So it");
  r = post(s.port, "/apply-template", R"({"messages":[{"role":"user","content":"a"}],"add_generation_prompt":false})");
  CHECK(Json::parse(r.body)["prompt"] == "<|endoftext|><user>a</user>");
}

TEST_CASE("logprobs, token ids and timings in whole replies") {
  Served s;
  const TestReply r =
      post(s.port, "/v1/chat/completions", body_of(R"("messages":[{"role":"user","content":"hi"}],"logprobs":true,
                             "return_token_ids":true,"timings":true)"));
  const Json json = Json::parse(r.body);
  CHECK(json["choices"][0]["logprobs"]["content"][1] ==
        Json::parse(R"({"token":"k","logprob":-1.0,"bytes":[107],"top_logprobs":[]})"));
  CHECK(json["choices"][0]["token_ids"] == Json::parse("[111,107]"));
  CHECK(json["prompt_token_ids"][0] == 256);
  CHECK(json["timings"]["ttft_ms"].get<double>() > 0);
  CHECK(json["timings"]["cached_tokens"] == 0);
}

TEST_CASE("tokenize and detokenize: with the names of several servers") {
  Served s;
  Json r = Json::parse(post(s.port, "/tokenize", R"({"model":"m","prompt":"ab"})").body);
  CHECK(r == Json::parse(R"({"count":3,"max_model_len":64,"tokens":[256,97,98]})"));
  r = Json::parse(post(s.port, "/v1/tokenize", R"({"prompt":"ab","add_special_tokens":false})").body);
  CHECK(r["tokens"] == Json::parse("[97,98]"));
  r = Json::parse(post(s.port, "/tokenize", R"({"content":"ab"})").body);
  CHECK(r["tokens"] == Json::parse("[97,98]"));
  r = Json::parse(post(s.port, "/tokenize", R"({"content":"a","add_special":true})").body);
  CHECK(r["tokens"] == Json::parse("[256,97]"));
  r = Json::parse(post(s.port, "/tokenize", R"({"content":"<|endoftext|>","parse_special":false})").body);
  CHECK(r["count"] == 13);
  r = Json::parse(post(s.port, "/tokenize", R"({"content":"a\u00e4","with_pieces":true})").body);
  CHECK(r["tokens"] == Json::parse(R"([{"id":97,"piece":"a"},{"id":195,"piece":[195]},{"id":164,"piece":[164]}])"));
  r = Json::parse(post(s.port, "/tokenize", R"({"messages":[{"role":"user","content":"a"}]})").body);
  CHECK(r["tokens"][0] == 256);
  CHECK(r["tokens"][1] == '<');  // exactly one BOS
  r = Json::parse(post(s.port, "/detokenize", R"({"model":"m","tokens":[256,97,228]})").body);
  CHECK(r == Json::parse(R"({"prompt":"<|endoftext|>a\ufffd","content":"<|endoftext|>a\ufffd"})"));
  CHECK(post(s.port, "/v1/detokenize", R"({"tokens":[260]})").status == 400);
  CHECK(post(s.port, "/detokenize", R"({})").status == 400);
  CHECK(post(s.port, "/tokenize", R"({})").status == 400);
  CHECK(post(s.port, "/tokenize", R"({"model":"other","prompt":"a"})").status == 404);
  r = Json::parse(post(s.port, "/tokenize", R"({"prompt":""})").body);
  CHECK(r["tokens"] == Json::parse("[256]"));
}

}  // namespace
}  // namespace rw
