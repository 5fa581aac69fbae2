#include "libcore/api/chat_request.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "libcore/api/api_error.h"

namespace rw {
namespace {

const RequestLimits kLimits{.model = "m", .vocab_size = 100, .max_model_len = 64, .max_choices = 8, .max_logprobs = 5};
const std::string kHello = R"("messages":[{"role":"user","content":"hello"}])";

ChatRequest parse(const std::string& body, const RequestLimits& limits = kLimits) {
  return parse_chat_request(body, limits);
}
std::string refusal(const std::string& body, const RequestLimits& limits = kLimits) {
  try {
    parse(body, limits);
  } catch (const ApiError& e) {
    return std::to_string(e.refusal().status) + " " + e.refusal().param;
  }
  return "taken";
}
std::string refusal_with(const std::string& fields) { return refusal("{" + kHello + "," + fields + "}"); }
std::string refusal_of_messages(const std::string& messages) { return refusal("{\"messages\":" + messages + "}"); }

TEST_CASE("chat request: defaults") {
  const ChatRequest r = parse("{" + kHello + "}");
  CHECK_FALSE(r.common.max_tokens.has_value());  // the rest of the context
  CHECK(r.common.logprobs == -1);
  CHECK(r.prompt.add_generation_prompt);
  CHECK_FALSE(r.prompt.continue_final_message);
  CHECK(r.prompt.chat_template.empty());
  CHECK((*r.prompt.messages)[0]["content"] == "hello");
  CHECK(*r.prompt.variables == Json::object());
  CHECK_FALSE(r.common.add_special_tokens.has_value());
}

TEST_CASE("chat request: messages") {
  CHECK(refusal("{}") == "400 messages");
  CHECK(refusal_of_messages("null") == "400 messages");
  CHECK(refusal_of_messages("[]") == "400 messages");
  CHECK(refusal_of_messages("{}") == "400 messages");
  CHECK(refusal_of_messages("\"hi\"") == "400 messages");
  CHECK(refusal_of_messages("[7]") == "400 messages[0]");
  CHECK(refusal_of_messages(R"([{"role":"user"}])") == "400 messages[0].content");
  CHECK(refusal_of_messages(R"([{"role":"user","content":null}])") == "400 messages[0].content");
  CHECK(refusal_of_messages(R"([{"role":"user","content":7}])") == "400 messages[0].content");
  CHECK(refusal_of_messages(R"([{"content":"a"}])") == "400 messages[0].role");
  CHECK(refusal_of_messages(R"([{"role":3,"content":"a"}])") == "400 messages[0].role");
  CHECK(refusal_of_messages(R"([{"role":"","content":"a"}])") == "400 messages[0].role");
  CHECK(refusal_of_messages(R"([{"role":"user","content":"a"},{"role":"user","content":[{"type":"image_url"}]}])") ==
        "400 messages[1].content[0].type");
  CHECK(refusal_of_messages(R"([{"role":"user","content":[{"type":"text"}]}])") == "400 messages[0].content[0].text");
  CHECK(refusal_of_messages(R"([{"role":"user","content":[7]}])") == "400 messages[0].content[0]");
  CHECK(refusal_of_messages(R"([{"role":"user","content":""}])") == "taken");
  CHECK(refusal_of_messages(R"([{"role":"user","content":[{"type":"text","text":"a"}]}])") == "taken");
  CHECK(refusal_of_messages(R"([{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}])") == "taken");
}

TEST_CASE("chat request: logprobs are a switch and a number") {
  CHECK(parse("{" + kHello + R"(,"logprobs":true})").common.logprobs == 0);
  CHECK(parse("{" + kHello + R"(,"logprobs":true,"top_logprobs":5})").common.logprobs == 5);
  CHECK(parse("{" + kHello + R"(,"logprobs":false,"top_logprobs":0})").common.logprobs == -1);
  CHECK(refusal_with(R"("logprobs":1)") == "400 logprobs");
  CHECK(refusal_with(R"("logprobs":true,"top_logprobs":6)") == "400 top_logprobs");
  CHECK(refusal_with(R"("top_logprobs":2)") == "400 top_logprobs");
}

TEST_CASE("chat request: what the template sees") {
  const ChatRequest r = parse("{" + kHello + R"(,"tools":[{"type":"function"}],"documents":[],
      "chat_template_kwargs":{"enable_thinking":false},"tool_choice":"auto"})");
  CHECK((*r.prompt.variables)["tools"][0]["type"] == "function");
  CHECK((*r.prompt.variables)["enable_thinking"] == false);
  CHECK(refusal_with(R"("tools":{})") == "400 tools");
  CHECK(refusal_with(R"("chat_template_kwargs":[])") == "400 chat_template_kwargs");
  CHECK(refusal_with(R"("chat_template_kwargs":{"messages":1})") == "400 chat_template_kwargs.messages");
  CHECK(refusal_with(R"("chat_template":"x")") == "400 chat_template");
  RequestLimits open = kLimits;
  open.chat_template = true;
  CHECK(parse("{" + kHello + R"(,"chat_template":"x"})", open).prompt.chat_template == "x");
}

TEST_CASE("chat request: going on with the last message") {
  const ChatRequest r = parse("{" + kHello + R"(,"continue_final_message":true})");
  CHECK(r.prompt.continue_final_message);
  CHECK_FALSE(r.prompt.add_generation_prompt);
  CHECK(refusal_with(R"("continue_final_message":true,"add_generation_prompt":true)") == "400 continue_final_message");
  CHECK(refusal_with(R"("continue_final_message":true,"add_generation_prompt":false)") == "taken");
  CHECK(refusal(R"({"messages":[{"role":"user","content":""}],"continue_final_message":true})") ==
        "400 continue_final_message");
}

TEST_CASE("chat request: what is not there is refused") {
  CHECK(refusal_with(R"("tool_choice":"required")") == "400 tool_choice");
  CHECK(refusal_with(R"("tool_choice":{"type":"function"})") == "400 tool_choice");
  CHECK(refusal_with(R"("functions":[{"name":"f"}])") == "400 functions");
  CHECK(refusal_with(R"("modalities":["text","audio"])") == "400 modalities");
  CHECK(refusal_with(R"("modalities":["text"])") == "taken");
  CHECK(refusal_with(R"("response_format":{"type":"json_schema"})") == "400 response_format");
  CHECK(refusal_with(R"("echo":true)") == "400 echo");
  CHECK(refusal_with(R"("n":9)") == "400 n");
  CHECK(parse("{" + kHello + R"(,"strange":1})").common.unknown == std::vector<std::string>{"strange"});
}

}  // namespace
}  // namespace rw
