#include "libcore/api/chat_request.h"

#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/api/request_body.h"

namespace rw {
namespace {

constexpr size_t kMaxMessages = 16384, kMaxTemplateBytes = 256 << 10, kMaxNameBytes = 256;

void check_content(const Json& message, const std::string& path) {
  const auto it = message.find("content");
  const bool absent = it == message.end() || it->is_null();
  if (absent) {
    const bool calls = message.contains("tool_calls") && message["tool_calls"].is_array();
    if (calls) return;
    refuse(path + ".content", "expected a string or a list of text parts, found none");
  }
  if (it->is_string()) return;
  if (!it->is_array()) refuse(path + ".content", "expected a string or a list of text parts, found {}", found(*it));
  size_t i = 0;
  for (const Json& part : *it) {
    const std::string at = fmt::format("{}.content[{}]", path, i++);
    if (!part.is_object()) refuse(at, "expected an object, found {}", found(part));
    const auto type = part.find("type");
    if (type == part.end() || !type->is_string()) refuse(at + ".type", "expected \"text\"");
    if (*type != "text") refuse(at + ".type", "{} is not supported; expected \"text\"", found(*type));
    const auto text = part.find("text");
    if (text == part.end() || !text->is_string()) refuse(at + ".text", "expected a string");
  }
}

void check_messages(const Json* messages) {
  if (messages == nullptr) refuse("messages", "expected a list of messages, found none");
  if (!messages->is_array()) refuse("messages", "expected a list of messages, found {}", found(*messages));
  if (messages->empty()) refuse("messages", "expected at least one message, found an empty list");
  if (messages->size() > kMaxMessages)
    refuse("messages", "expected at most {} messages, found {}", kMaxMessages, messages->size());
  size_t i = 0;
  for (const Json& message : *messages) {
    const std::string path = fmt::format("messages[{}]", i++);
    if (!message.is_object()) refuse(path, "expected an object, found {}", found(message));
    const auto role = message.find("role");
    if (role == message.end() || !role->is_string()) refuse(path + ".role", "expected a string");
    const size_t length = role->get_ref<const std::string&>().size();
    if (length == 0 || length > kMaxNameBytes)
      refuse(path + ".role", "expected 1 to {} bytes, found {}", kMaxNameBytes, length);
    check_content(message, path);
  }
}

Json read_variables(RequestFields& fields) {
  Json variables = Json::object();
  for (const char* name : {"tools", "documents"}) {
    const Json* value = fields.find(name);
    if (value == nullptr) continue;
    if (!value->is_array()) refuse(name, "expected a list, found {}", found(*value));
    variables[name] = *value;
  }
  const Json* more = fields.find("chat_template_kwargs");
  if (more == nullptr) return variables;
  if (!more->is_object()) refuse("chat_template_kwargs", "expected an object, found {}", found(*more));
  for (const auto& item : more->items()) {
    if (item.key() == "messages" || item.key() == "add_generation_prompt" || item.key() == "continue_final_message")
      refuse("chat_template_kwargs." + item.key(), "expected beside chat_template_kwargs, as a field of the request");
    variables[item.key()] = item.value();
  }
  return variables;
}

}  // namespace

ChatPrompt read_chat_prompt(RequestFields& fields, const RequestLimits& limits) {
  ChatPrompt prompt;
  const Json* messages = fields.find("messages");
  check_messages(messages);
  prompt.messages = std::make_shared<const Json>(*messages);
  prompt.variables = std::make_shared<const Json>(read_variables(fields));
  prompt.continue_final_message = fields.boolean("continue_final_message", false);
  const bool asked = fields.has("add_generation_prompt");
  prompt.add_generation_prompt = fields.boolean("add_generation_prompt", !prompt.continue_final_message);
  if (asked && prompt.add_generation_prompt && prompt.continue_final_message)
    refuse("continue_final_message", "and add_generation_prompt exclude each other; found both true");
  if (prompt.continue_final_message) {
    const Json& last = messages->back();
    const auto content = last.find("content");
    if (content == last.end() || !content->is_string() || content->get_ref<const std::string&>().empty())
      refuse("continue_final_message", "expected a last message whose content is a string that is not empty");
  }
  prompt.chat_template = fields.text("chat_template", "", kMaxTemplateBytes);
  if (!prompt.chat_template.empty() && !limits.chat_template)
    refuse("chat_template", "requests may not bring one here; the server's --request-chat-template lets them");
  return prompt;
}

ChatRequest parse_chat_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_request_body(body);
  RequestFields fields(json);
  ChatRequest r;
  r.common = read_generation_request(fields, limits);
  r.prompt = read_chat_prompt(fields, limits);
  const bool logprobs = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, limits.max_logprobs);
  if (top && *top > 0 && !logprobs) refuse("top_logprobs", "expected \"logprobs\": true beside it");
  if (logprobs) r.common.logprobs = top.value_or(0);
  fields.only("echo", "false", "continue_final_message goes on with the last message");
  // Tools are shown to the template; that the answer is a call cannot be imposed, nor is it taken apart.
  if (const Json* choice = fields.find("tool_choice"); choice != nullptr && *choice != "auto" && *choice != "none")
    refuse("tool_choice", "{} is not supported; expected \"auto\" or \"none\"", found(*choice));
  fields.only("functions", "null", "tools are");
  fields.only("function_call", "\"none\"", "");
  fields.only("modalities", "[\"text\"]", "");
  fields.only("audio", "null", "");
  fields.only("prediction", "null", "");
  fields.only("web_search_options", "null", "");
  for (const char* name : {"parallel_tool_calls", "reasoning_effort", "verbosity"}) fields.ignore(name);
  for (std::string& name : fields.unknown()) r.common.unknown.push_back(std::move(name));
  return r;
}

}  // namespace rw
