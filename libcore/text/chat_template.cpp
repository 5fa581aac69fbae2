#include "libcore/text/chat_template.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/text/chat_template_builtin.h"
#include "libcore/text/jinja/jinja.h"

namespace rw {
namespace {

constexpr const char* kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                          "pad_token", "cls_token", "mask_token"};

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm time{};
  localtime_r(&now, &time);
  return time;
}

// The special tokens' texts: a string, or an object that holds it.
Json special_tokens(const Json& config) {
  Json tokens = Json::object();
  for (const char* name : kSpecialTokens) {
    const auto it = config.find(name);
    if (it == config.end()) continue;
    if (it->is_string()) tokens[name] = *it;
    else if (it->is_object() && it->contains("content") && it->at("content").is_string())
      tokens[name] = it->at("content");
  }
  return tokens;
}

Json read_config(std::string_view json, const std::string& where) {
  if (json.empty()) return Json::object();
  Json config = parse_json(json, where);
  if (!config.is_object()) fail(ErrorKind::input, "{}: expected an object, found {}", where, config.type_name());
  return config;
}

// What a template can take as a message's content.
struct ContentForms {
  bool text = true, parts = false;
};

class JinjaChatTemplate : public ChatTemplate {
 public:
  struct Source {
    std::string name, usual, with_tools;  // the last: empty where there is one for both
    Json tokens;
  };
  JinjaChatTemplate(const Source& source, LocalClock clock)
      : name_(source.name),
        tokens_(source.tokens),
        clock_(clock ? std::move(clock) : local_time),
        usual_(std::make_unique<jinja::Template>(source.usual, name_)) {
    if (!source.with_tools.empty()) with_tools_ = std::make_unique<jinja::Template>(source.with_tools, name_);
    forms_ = {.text = shows("rwprobe"), .parts = shows(Json::array({{{"type", "text"}, {"text", "rwprobe"}}}))};
    if (!forms_.text && !forms_.parts) forms_.text = true;  // it needs more than one message to say
  }

  std::string name() const override { return name_; }

  std::string render(const Json& messages, bool add_generation_prompt, const Json& variables) const override {
    if (!messages.is_array() || messages.empty())
      fail(ErrorKind::input, "messages: expected a list of at least one message, found {}",
           messages.is_array() ? "none" : messages.type_name());
    Json all = given(variables);
    Json list = Json::array();
    for (size_t i = 0; i < messages.size(); ++i) list.push_back(message(messages[i], i));
    all["messages"] = std::move(list);
    all["add_generation_prompt"] = add_generation_prompt;
    const bool tools = with_tools_ != nullptr && !all["tools"].is_null();
    return (tools ? *with_tools_ : *usual_).render({.variables = all, .now = clock_()});
  }

 private:
  Json given(const Json& variables) const {
    Json all = tokens_;
    all["tools"] = nullptr;
    all["documents"] = nullptr;
    if (variables.is_null()) return all;
    if (!variables.is_object())
      fail(ErrorKind::input, "the chat template's variables: expected an object, found {}", variables.type_name());
    for (const auto& [key, value] : variables.items())
      if (key != "chat_template_kwargs") all[key] = value;
    const auto more = variables.find("chat_template_kwargs");
    if (more != variables.end() && more->is_object())
      for (const auto& [key, value] : more->items()) all[key] = value;
    return all;
  }

  Json message(const Json& message, size_t i) const {
    if (!message.is_object() || !message.contains("role") || !message.at("role").is_string())
      fail(ErrorKind::input, "messages[{}]: expected an object with a role, found {}", i,
           message.is_object() ? "no role" : message.type_name());
    Json out = Json::object();
    for (const auto& [key, value] : message.items()) {
      if (value.is_null()) continue;
      out[key] = key == "content" ? content(value, i) : value;
    }
    return out;
  }

  Json content(const Json& content, size_t i) const {
    if (content.is_string()) {
      if (forms_.text) return content;
      return Json::array({{{"type", "text"}, {"text", content}}});
    }
    if (!content.is_array())
      fail(ErrorKind::input, "messages[{}].content: expected a string or a list of parts, found {}", i,
           content.type_name());
    std::string joined;
    Json parts = Json::array();
    for (size_t p = 0; p < content.size(); ++p) {
      const std::string text = part_text(content[p], fmt::format("messages[{}].content[{}]", i, p));
      joined += (p > 0 ? "\n" : "") + text;
      parts.push_back({{"type", "text"}, {"text", text}});
    }
    return forms_.parts ? parts : Json(joined);
  }

  static std::string part_text(const Json& part, const std::string& where) {
    if (part.is_string()) return part.get<std::string>();
    const bool object = part.is_object() && part.contains("type") && part.at("type").is_string();
    const std::string type = object ? part.at("type").get<std::string>() : part.type_name();
    if (!object || type != "text")
      fail(ErrorKind::input, "{}: expected a part of type \"text\", found \"{}\"; this server reads text only", where,
           type);
    if (!part.contains("text") || !part.at("text").is_string())
      fail(ErrorKind::input, "{}: expected a string \"text\", found none", where);
    return part.at("text").get<std::string>();
  }

  // Whether a message of this content comes out as its text.
  bool shows(const Json& content) const {
    Json all = given(nullptr);
    all["messages"] = Json::array({{{"role", "user"}, {"content", content}}});
    all["add_generation_prompt"] = true;
    try {
      const std::string text = usual_->render({.variables = all, .now = clock_()});
      return text.find("rwprobe") != std::string::npos && text.find("'type'") == std::string::npos &&
             text.find("\"type\"") == std::string::npos;
    } catch (const Error&) {
      return false;
    }
  }

  const std::string name_;
  const Json tokens_;
  const LocalClock clock_;
  std::unique_ptr<jinja::Template> usual_, with_tools_;
  ContentForms forms_;
};

// One of the named templates of a list; empty when there is none of this name.
std::string named_source(const Json& list, const std::string& name, const std::string& where) {
  for (const Json& entry : list) {
    if (!entry.is_object()) fail(ErrorKind::input, "{}: chat_template: expected objects with name and template", where);
    if (json_string(entry, "name", where) == name) return json_string(entry, "template", where);
  }
  return {};
}

}  // namespace

std::unique_ptr<ChatTemplate> model_chat_template(std::string_view tokenizer_config_json, const std::string& where,
                                                  LocalClock clock) {
  const Json config = read_config(tokenizer_config_json, where);
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return nullptr;
  JinjaChatTemplate::Source source{.name = where, .usual = {}, .with_tools = {}, .tokens = special_tokens(config)};
  if (it->is_string()) {
    source.usual = it->get<std::string>();
  } else if (it->is_array()) {
    source.usual = named_source(*it, "default", where);
    source.with_tools = named_source(*it, "tool_use", where);
    if (source.usual.empty())
      fail(ErrorKind::input, "{}: chat_template: expected one named \"default\", found none", where);
  } else {
    fail(ErrorKind::input, "{}: key \"chat_template\": expected a string or a list, found {}", where, it->type_name());
  }
  return std::make_unique<JinjaChatTemplate>(source, std::move(clock));
}

std::unique_ptr<ChatTemplate> named_chat_template(const std::string& name_or_path,
                                                  std::string_view tokenizer_config_json, LocalClock clock) {
  JinjaChatTemplate::Source source{.name = name_or_path, .usual = {}, .with_tools = {}, .tokens = {}};
  source.tokens = special_tokens(read_config(tokenizer_config_json, "tokenizer_config.json"));
  for (const BuiltinChatTemplate& builtin : builtin_chat_templates())
    if (builtin.name == name_or_path) source.usual = builtin.source;
  if (source.usual.empty()) {
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(name_or_path, ignored)) {
      std::string known;
      for (const std::string& name : chat_template_names()) known += name + ", ";
      const std::string near = nearest(name_or_path, chat_template_names());
      fail(ErrorKind::usage, "chat template \"{}\": expected {}or the path of a file{}", name_or_path, known,
           near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    source.usual = read_file(name_or_path);
  }
  return std::make_unique<JinjaChatTemplate>(source, std::move(clock));
}

std::vector<std::string> chat_template_names() {
  std::vector<std::string> names;
  for (const BuiltinChatTemplate& builtin : builtin_chat_templates()) names.emplace_back(builtin.name);
  return names;
}

}  // namespace rw
