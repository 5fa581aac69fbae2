#include "libcore/api/completion_request.h"

#include <doctest/doctest.h>

#include <string>

#include "libcore/api/api_error.h"

namespace rw {
namespace {

const RequestLimits kLimits{.model = "m", .vocab_size = 100, .max_model_len = 64, .max_choices = 8, .max_logprobs = 5};

CompletionRequest parse(const std::string& body) { return parse_completion_request(body, kLimits); }
CompletionRequest with(const std::string& fields) { return parse(R"({"model":"m","prompt":"a",)" + fields + "}"); }

// The refusal of a body, as "status param"; "taken" when there is none.
std::string refusal(const std::string& body) {
  try {
    parse(body);
  } catch (const ApiError& e) {
    CHECK(e.kind() == ErrorKind::input);
    return std::to_string(e.refusal().status) + " " + e.refusal().param;
  }
  return "taken";
}
std::string refusal_with(const std::string& fields) { return refusal(R"({"model":"m","prompt":"a",)" + fields + "}"); }

TEST_CASE("completion request: defaults are OpenAI's") {
  const CompletionRequest r = parse(R"({"model":"m","prompt":"a"})");
  REQUIRE(r.prompts.size() == 1);
  CHECK(r.prompts[0].text == "a");
  CHECK_FALSE(r.prompts[0].is_ids);
  CHECK(r.common.max_tokens == 16);
  CHECK(r.default_max_tokens);
  CHECK(r.common.n == 1);
  CHECK(r.common.sampling.temperature == 1.0);
  CHECK(r.common.sampling.top_p == 1.0);
  CHECK(r.common.sampling.top_k == 0);
  CHECK(r.common.sampling.min_p == 0.0);
  CHECK(r.common.sampling.repetition_penalty == 1.0);
  CHECK(r.common.sampling.presence_penalty == 0.0);
  CHECK(r.common.sampling.frequency_penalty == 0.0);
  CHECK(r.common.sampling.logit_bias.empty());
  CHECK_FALSE(r.common.seed.has_value());
  CHECK(r.common.logprobs == -1);
  CHECK(r.common.stop.empty());
  CHECK_FALSE(r.common.include_stop);
  CHECK_FALSE(r.common.ignore_eos);
  CHECK(r.common.skip_special_tokens);
  CHECK_FALSE(r.common.add_special_tokens.has_value());
  CHECK_FALSE(r.common.stream);
  CHECK_FALSE(r.common.include_usage);
  CHECK_FALSE(r.echo);
  CHECK(r.common.cache_prompt);
  CHECK(r.common.cache_salt.empty());
  CHECK(r.common.priority == 0);
  CHECK(r.common.timeout_s == 0);
  CHECK(r.common.unknown.empty());
}

TEST_CASE("completion request: every field is read") {
  const CompletionRequest r = with(
      R"("max_tokens":5,"n":2,"temperature":0.5,"top_p":0.25,"top_k":7,"min_p":0.125,"repetition_penalty":1.5,
         "presence_penalty":-2,"frequency_penalty":2,"logit_bias":{"3":-100,"99":1.5},"seed":-1,"stop":["x","yz"],
         "stop_token_ids":[0,99],"include_stop_str_in_output":true,"ignore_eos":true,"min_tokens":5,"logprobs":5,
         "echo":true,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true},"priority":-3,
         "cache_salt":"s","cache_prompt":false,"skip_special_tokens":false,"add_special_tokens":false,
         "truncate_prompt_tokens":9,"return_token_ids":true,"timings":true,"timeout":2.5,"request_id":"r-1","user":"u",
         "best_of":2,"suffix":null,"response_format":{"type":"text"},"allowed_token_ids":null,"bad_words":[])");
  const GenerationRequest& c = r.common;
  CHECK(c.max_tokens == 5);
  CHECK_FALSE(r.default_max_tokens);
  CHECK(c.n == 2);
  CHECK(c.sampling.temperature == 0.5);
  CHECK(c.sampling.top_p == 0.25);
  CHECK(c.sampling.top_k == 7);
  CHECK(c.sampling.min_p == 0.125);
  CHECK(c.sampling.repetition_penalty == 1.5);
  CHECK(c.sampling.presence_penalty == -2);
  CHECK(c.sampling.frequency_penalty == 2);
  CHECK(c.sampling.logit_bias == std::vector<std::pair<int32_t, float>>{{3, -100.F}, {99, 1.5F}});
  CHECK(c.seed == UINT64_MAX);
  CHECK(c.stop == std::vector<std::string>{"x", "yz"});
  CHECK(c.stop_token_ids == std::vector<int32_t>{0, 99});
  CHECK(c.include_stop);
  CHECK(c.ignore_eos);
  CHECK(c.sampling.min_tokens == 5);
  CHECK(c.logprobs == 5);
  CHECK(r.echo);
  CHECK(c.stream);
  CHECK(c.include_usage);
  CHECK(c.continuous_usage);
  CHECK(c.priority == -3);
  CHECK(c.cache_salt == "s");
  CHECK_FALSE(c.cache_prompt);
  CHECK_FALSE(c.skip_special_tokens);
  CHECK(c.add_special_tokens == false);
  CHECK(c.truncate_prompt_tokens == 9);
  CHECK(c.return_token_ids);
  CHECK(c.timings);
  CHECK(c.timeout_s == 2.5);
  CHECK(c.request_id == "r-1");
  CHECK(c.unknown.empty());
}

TEST_CASE("completion request: the four kinds of prompt") {
  CHECK(parse(R"({"prompt":["a","b"]})").prompts[1].text == "b");
  const CompletionRequest ids = parse(R"({"prompt":[5,6]})");
  REQUIRE(ids.prompts.size() == 1);
  CHECK(ids.prompts[0].is_ids);
  CHECK(ids.prompts[0].ids == std::vector<int32_t>{5, 6});
  const CompletionRequest lists = parse(R"({"prompt":[[1],[2,3],[4]]})");
  REQUIRE(lists.prompts.size() == 3);
  CHECK(lists.prompts[1].ids == std::vector<int32_t>{2, 3});
  CHECK(refusal(R"({})") == "400 prompt");
  CHECK(refusal(R"({"prompt":null})") == "400 prompt");
  CHECK(refusal(R"({"prompt":""})") == "400 prompt");
  CHECK(refusal(R"({"prompt":[]})") == "400 prompt");
  CHECK(refusal(R"({"prompt":[[]]})") == "400 prompt[0]");
  CHECK(refusal(R"({"prompt":["a",""]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":["a",7]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":{"a":1}})") == "400 prompt");
  CHECK(refusal(R"({"prompt":true})") == "400 prompt");
  CHECK(refusal(R"({"prompt":[1,100]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":[1,-1]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":[1,2.5]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":[1,"a"]})") == "400 prompt[1]");
  CHECK(refusal(R"({"prompt":[1,18446744073709551615]})") == "400 prompt[1]");
}

TEST_CASE("completion request: prompts times n is bounded") {
  CHECK(refusal_with(R"("n":8)") == "taken");
  CHECK(refusal_with(R"("n":9)") == "400 n");
  CHECK(refusal_with(R"("n":1000000)") == "400 n");
  CHECK(refusal_with(R"("n":0)") == "400 n");
  CHECK(refusal(R"({"prompt":["a","b","c"],"n":3})") == "400 n");
  CHECK(refusal(R"({"prompt":["a","a","a","a","a","a","a","a","a"]})") == "400 prompt");
}

TEST_CASE("completion request: wrong types and ranges name the field") {
  for (const char* field : {"max_tokens", "max_completion_tokens", "n", "top_k", "seed", "min_tokens", "logprobs",
                            "priority", "truncate_prompt_tokens", "best_of", "temperature", "top_p", "min_p",
                            "repetition_penalty", "presence_penalty", "frequency_penalty", "timeout"}) {
    CAPTURE(field);
    const std::string quoted = std::string("\"") + field + "\":";
    CHECK(refusal_with(quoted + "\"1\"") == std::string("400 ") + field);
    CHECK(refusal_with(quoted + "true") == std::string("400 ") + field);
    CHECK(refusal_with(quoted + "[1]") == std::string("400 ") + field);
    CHECK(refusal_with(quoted + "{}") == std::string("400 ") + field);
  }
  for (const char* field : {"stream", "echo", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens",
                            "add_special_tokens", "cache_prompt", "return_token_ids", "timings"}) {
    CAPTURE(field);
    const std::string quoted = std::string("\"") + field + "\":";
    CHECK(refusal_with(quoted + "1") == std::string("400 ") + field);
    CHECK(refusal_with(quoted + "\"true\"") == std::string("400 ") + field);
  }
  CHECK(refusal_with(R"("temperature":-0.1)") == "400 temperature");
  CHECK(refusal_with(R"("temperature":2.1)") == "400 temperature");
  CHECK(refusal_with(R"("temperature":2)") == "taken");
  CHECK(refusal_with(R"("top_p":1.01)") == "400 top_p");
  CHECK(refusal_with(R"("top_p":0)") == "taken");
  CHECK(refusal_with(R"("top_k":-2)") == "400 top_k");
  CHECK(with(R"("top_k":-1)").common.sampling.top_k == 0);
  CHECK(with(R"("top_k":5000)").common.sampling.top_k == 0);
  CHECK(refusal_with(R"("min_p":1.5)") == "400 min_p");
  CHECK(refusal_with(R"("repetition_penalty":0)") == "400 repetition_penalty");
  CHECK(refusal_with(R"("presence_penalty":2.5)") == "400 presence_penalty");
  CHECK(refusal_with(R"("frequency_penalty":-2.5)") == "400 frequency_penalty");
  CHECK(refusal_with(R"("max_tokens":-1)") == "400 max_tokens");
  CHECK(refusal_with(R"("max_tokens":1.5)") == "400 max_tokens");
  CHECK(with(R"("max_tokens":3.0)").common.max_tokens == 3);
  CHECK(refusal_with(R"("max_tokens":1e300)") == "400 max_tokens");
  CHECK(refusal_with(R"("max_tokens":9223372036854775808)") == "400 max_tokens");
  CHECK(with(R"("max_tokens":3,"max_completion_tokens":4)").common.max_tokens == 4);
  CHECK(refusal_with(R"("max_tokens":3,"min_tokens":4)") == "400 min_tokens");
  CHECK(with(R"("min_tokens":20)").common.max_tokens == 20);
  CHECK(refusal_with(R"("logprobs":6)") == "400 logprobs");
  CHECK(refusal_with(R"("logprobs":-1)") == "400 logprobs");
  CHECK(with(R"("logprobs":0)").common.logprobs == 0);
  CHECK(refusal_with(R"("seed":1.5)") == "400 seed");
  CHECK(refusal_with(R"("truncate_prompt_tokens":0)") == "400 truncate_prompt_tokens");
  CHECK(with(R"("truncate_prompt_tokens":-1)").common.truncate_prompt_tokens == 64);
  CHECK(refusal_with(R"("timeout":0)") == "400 timeout");
  CHECK(refusal_with(R"("cache_salt":"")") == "400 cache_salt");
  CHECK(refusal_with(R"("cache_salt":7)") == "400 cache_salt");
  CHECK(refusal_with("\"request_id\":\"a b\"") == "400 request_id");
  CHECK(refusal_with("\"request_id\":\"" + std::string(129, 'a') + "\"") == "400 request_id");
}

TEST_CASE("completion request: stops") {
  CHECK(with(R"("stop":"x")").common.stop == std::vector<std::string>{"x"});
  CHECK(with(R"("stop":[])").common.stop.empty());
  CHECK(with(R"("stop":null)").common.stop.empty());
  CHECK(refusal_with(R"("stop":"")") == "400 stop");
  CHECK(refusal_with(R"("stop":["a",""])") == "400 stop");
  CHECK(refusal_with(R"("stop":["a",1])") == "400 stop");
  CHECK(refusal_with(R"("stop":3)") == "400 stop");
  CHECK(refusal_with("\"stop\":\"" + std::string(1025, 'a') + "\"") == "400 stop");
  CHECK(refusal_with(R"("stop_token_ids":[100])") == "400 stop_token_ids[0]");
  CHECK(refusal_with(R"("stop_token_ids":3)") == "400 stop_token_ids");
}

TEST_CASE("completion request: logit_bias") {
  CHECK(refusal_with(R"("logit_bias":[1])") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"100":1})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"-1":1})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"a":1})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"1x":1})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"":1})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"7":1,"07":2})") == "400 logit_bias");
  CHECK(refusal_with(R"("logit_bias":{"7":"1"})") == "400 logit_bias.7");
  CHECK(refusal_with(R"("logit_bias":{"7":101})") == "400 logit_bias.7");
  CHECK(refusal_with(R"("logit_bias":{"7":null})") == "400 logit_bias.7");
  CHECK(refusal_with(R"("logit_bias":{})") == "taken");
}

TEST_CASE("completion request: what is not there is refused, not passed over") {
  CHECK(refusal_with(R"("response_format":{"type":"json_object"})") == "400 response_format");
  CHECK(refusal_with(R"("response_format":{"type":"json_schema","json_schema":{}})") == "400 response_format");
  CHECK(refusal_with(R"("response_format":"text")") == "400 response_format");
  CHECK(refusal_with(R"("allowed_token_ids":[1])") == "400 allowed_token_ids");
  CHECK(refusal_with(R"("bad_words":["a"])") == "400 bad_words");
  CHECK(refusal_with(R"("use_beam_search":true)") == "400 use_beam_search");
  CHECK(refusal_with(R"("use_beam_search":false)") == "taken");
  CHECK(refusal_with(R"("structured_outputs":{"regex":"a"})") == "400 structured_outputs");
  CHECK(refusal_with(R"("guided_json":{"type":"object"})") == "400 guided_json");
  CHECK(refusal_with(R"("prompt_logprobs":1)") == "400 prompt_logprobs");
  CHECK(refusal_with(R"("best_of":2)") == "400 best_of");
  CHECK(refusal_with(R"("suffix":"x")") == "400 suffix");
}

TEST_CASE("completion request: stream_options") {
  CHECK(refusal_with(R"("stream_options":{"include_usage":true})") == "400 stream_options");
  CHECK(refusal_with(R"("stream":true,"stream_options":[])") == "400 stream_options");
  CHECK(refusal_with(R"("stream":true,"stream_options":{"include_usage":1})") == "400 stream_options.include_usage");
}

TEST_CASE("completion request: another model is not found") {
  try {
    parse(R"({"model":"other","prompt":"a"})");
    FAIL("taken");
  } catch (const ApiError& e) {
    CHECK(e.refusal().status == 404);
    CHECK(e.refusal().code == "model_not_found");
    CHECK(e.refusal().param == "model");
  }
  CHECK(refusal(R"({"prompt":"a"})") == "taken");  // one model is all there is
  CHECK(refusal(R"({"model":7,"prompt":"a"})") == "400 model");
}

TEST_CASE("completion request: unknown fields are named, not refused") {
  const CompletionRequest r = with(R"("frobnicate":1,"stream":true,"stream_options":{"x":2})");
  CHECK(r.common.unknown == std::vector<std::string>{"stream_options.x", "frobnicate"});
}

TEST_CASE("completion request: bodies that are no JSON object") {
  for (const char* body :
       {"", " ", "{", "nonsense", "[]", "7", "null", "\"a\"", "{\"prompt\":\"a\"", "{\"prompt\":\"a\",}",
        R"({"prompt":"\ud800"})", R"({"prompt":"\udc00x"})", R"({"prompt":"a","temperature":NaN})",
        R"({"prompt":"a","temperature":Infinity})", R"({"prompt":"a","temperature":1e999})", "{\"prompt\":\"\xff\"}",
        "{\"prompt\":\"a\xc3\"}", "{\"prompt\":\"a\nb\"}"}) {
    CAPTURE(body);
    CHECK(refusal(body) == "400 ");
  }
  CHECK(refusal(R"({"prompt":"\ud83e\udd99"})") == "taken");
  using namespace std::string_literals;
  CHECK(refusal("{\"prompt\":\"a\"}\0"s) == "400 ");
  CHECK(refusal(R"({"prompt":"a","n":1,"n":1000000})") == "400 n");  // the last one counts
}

TEST_CASE("completion request: bombs are cheap to refuse") {
  CHECK(refusal(std::string(1'000'000, '[')) == "400 ");
  CHECK(refusal(R"({"prompt":"a","x":)" + std::string(70, '[') + std::string(70, ']') + "}") == "400 ");
  CHECK(refusal(R"({"prompt":"a","x":)" + std::string(60, '[') + std::string(60, ']') + "}") == "taken");
  std::string keys = R"({"prompt":"a")";
  for (int i = 0; i < 1100; ++i) keys += ",\"k" + std::to_string(i) + "\":0";
  CHECK(refusal(keys + "}") == "400 ");
  std::string values = R"({"prompt":[1)";
  for (int i = 0; i < 2'200'000; ++i) values += ",1";
  CHECK(refusal(values + "]}") == "400 ");
  std::string longer = R"({"prompt":[1)";
  for (int i = 0; i < 100; ++i) longer += ",1";
  CHECK(refusal(longer + "]}") == "400 prompt");
  CHECK(refusal(longer + R"(],"truncate_prompt_tokens":4})") == "taken");
}

}  // namespace
}  // namespace rw
