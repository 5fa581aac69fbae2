#include "libcore/api/prompt_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/text/utf8.h"

namespace rw {
namespace {

[[noreturn]] void refuse_length(const std::string& param, const std::string& message) {
  throw ApiError({.message = message, .param = param, .code = "context_length_exceeded"});
}

[[noreturn]] void refuse_prompt(const char* param, int64_t n, int64_t max_ids) {
  refuse_length(param,
                fmt::format("{}: this model's longest sequence is {} tokens; expected a shorter prompt, found {} "
                            "tokens",
                            param, max_ids, n));
}

// Bytes for a token up to which a text is tokenized without a thought.
constexpr int64_t kSurelyQuick = 64;
// Normal forms make a text shorter by less than this factor.
constexpr int64_t kMostShortened = 4;

int64_t longest_token(const Tokenizer& tokenizer) {
  size_t longest = 1;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id)
    longest = std::max(longest, tokenizer.token_bytes(static_cast<int32_t>(id)).size());
  return static_cast<int64_t>(longest);
}

void keep_last(std::vector<int32_t>& ids, int64_t n) {
  if (n > 0 && static_cast<int64_t>(ids.size()) > n) ids.erase(ids.begin(), ids.end() - n);
}

bool ends_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& tail) {
  return tail.size() <= ids.size() && std::equal(tail.rbegin(), tail.rend(), ids.rbegin());
}
bool begins_with(const std::vector<int32_t>& ids, const std::vector<int32_t>& head) {
  return head.size() <= ids.size() && std::equal(head.begin(), head.end(), ids.begin());
}

bool is_named(const ChatTemplate& t) {
  const auto names = chat_template_names();
  return std::find(names.begin(), names.end(), t.name()) != names.end();
}

// A template that a request brings, with the special tokens of the model's.
std::unique_ptr<ChatTemplate> own_template(const std::string& text, const ServedModel& model) {
  Json config = Json::object();
  if (!model.tokenizer_config.empty()) config = parse_json(model.tokenizer_config, "tokenizer_config.json");
  config["chat_template"] = text;
  return model_chat_template(config.dump(-1, ' ', false, Json::error_handler_t::replace), "chat_template");
}

// Cuts what a template wrote after the last message, so that the answer goes on in the middle of it.
std::string up_to_last_message(const std::string& rendered, const Json& messages) {
  std::string content = messages.back()["content"].get<std::string>();
  size_t at = rendered.rfind(content);
  if (at == std::string::npos) {  // templates trim
    const size_t begin = content.find_first_not_of(" \t\r\n");
    if (begin == std::string::npos) refuse("continue_final_message", "the last message is white space alone");
    content = content.substr(begin, content.find_last_not_of(" \t\r\n") + 1 - begin);
    at = rendered.rfind(content);
  }
  if (at == std::string::npos)
    refuse("continue_final_message", "the chat template does not write the last message as it is");
  return rendered.substr(0, at + content.size());
}

}  // namespace

std::vector<int32_t> text_ids(const TextToIds& what, const Tokenizer& tokenizer) {
  if (what.max_ids > 0 && static_cast<int64_t>(what.text.size()) > kSurelyQuick * what.max_ids) {
    const int64_t at_least = static_cast<int64_t>(what.text.size()) / (kMostShortened * longest_token(tokenizer));
    if (at_least > what.max_ids) refuse_prompt(what.param, at_least, what.max_ids);
  }
  std::vector<int32_t> ids;
  tokenizer.encode(what.text, ids, what.specials);
  if (!what.add_special_tokens) return ids;
  const TextTemplate& around = tokenizer.text_template();
  if (!begins_with(ids, around.before)) ids.insert(ids.begin(), around.before.begin(), around.before.end());
  if (!ends_with(ids, around.after)) ids.insert(ids.end(), around.after.begin(), around.after.end());
  return ids;
}

PromptTokens completion_prompt(const Prompt& prompt, const GenerationRequest& request, const ServedModel& model) {
  PromptTokens tokens{.text = prompt.text, .ids = prompt.ids};
  if (!prompt.is_ids)
    tokens.ids = text_ids({.text = prompt.text,
                           .add_special_tokens = request.add_special_tokens.value_or(true),
                           .max_ids = request.truncate_prompt_tokens > 0 ? 0 : model.max_model_len},
                          *model.tokenizer);
  if (tokens.ids.empty()) refuse("prompt", "expected text that makes at least one token, found none");
  keep_last(tokens.ids, request.truncate_prompt_tokens);
  return tokens;
}

std::string render_chat(const ChatPrompt& prompt, const ServedModel& model) {
  const bool brings_one = !prompt.chat_template.empty();
  if (!brings_one && model.chat_template == nullptr)
    refuse("messages",
           "this model has no chat template; start the server with --chat-template, or use "
           "/v1/completions");
  std::string text;
  try {
    const auto own = brings_one ? own_template(prompt.chat_template, model) : nullptr;
    const ChatTemplate& chosen = brings_one ? *own : *model.chat_template;
    text = chosen.render(*prompt.messages, prompt.add_generation_prompt, *prompt.variables);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::input) throw;
    refuse(brings_one ? "chat_template" : "messages", "the chat template refuses them: {}", e.what());
  }
  return prompt.continue_final_message ? up_to_last_message(text, *prompt.messages) : text;
}

std::vector<int32_t> chat_ids(const std::string& rendered, std::optional<bool> add_special_tokens, int64_t max_ids,
                              const ServedModel& model) {
  const bool named = model.chat_template != nullptr && is_named(*model.chat_template);
  return text_ids({.text = rendered,
                   .add_special_tokens = add_special_tokens.value_or(named),
                   .max_ids = max_ids,
                   .param = "messages"},
                  *model.tokenizer);
}

PromptTokens chat_prompt(const ChatPrompt& prompt, const GenerationRequest& request, const ServedModel& model) {
  PromptTokens tokens;
  tokens.text = render_chat(prompt, model);
  tokens.ids = chat_ids(tokens.text, request.add_special_tokens,
                        request.truncate_prompt_tokens > 0 ? 0 : model.max_model_len, model);
  if (tokens.ids.empty()) refuse("messages", "expected messages that make at least one token, found none");
  keep_last(tokens.ids, request.truncate_prompt_tokens);
  return tokens;
}

std::string visible_text(const std::vector<int32_t>& ids, bool skip_special_tokens, const Tokenizer& tokenizer) {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special_tokens || !tokenizer.is_special(id)) bytes += tokenizer.token_bytes(id);
  return replace_invalid_utf8(bytes);
}

int64_t answer_room(const AnswerRoom& r) {
  const int64_t room = r.max_model_len - r.n_prompt;
  const bool prompt_alone = r.max_tokens.has_value() && *r.max_tokens == 0;
  if (room < (prompt_alone ? 0 : 1)) refuse_prompt(r.param, r.n_prompt, r.max_model_len);
  if (!r.max_tokens) return room;
  if (*r.max_tokens <= room || r.is_default) return std::min(*r.max_tokens, room);
  refuse_length("max_tokens", fmt::format("max_tokens: this model's longest sequence is {} tokens; expected at most {} "
                                          "after a prompt of {}, found {}",
                                          r.max_model_len, room, r.n_prompt, *r.max_tokens));
}

}  // namespace rw
