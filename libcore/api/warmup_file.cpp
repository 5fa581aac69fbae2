#include "libcore/api/warmup_file.h"

#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/api/prompt_tokens.h"
#include "libcore/api/request_body.h"
#include "libcore/base/files.h"

namespace rw {
namespace {

constexpr size_t kMaxNameBytes = 256, kMaxSaltBytes = 1024;
constexpr double kMaxTtl = 1e9;

WarmPrompt read_line(std::string_view line, int64_t number, const ServedModel& model) {
  const Json json = parse_request_body(line);
  RequestFields fields(json);
  const RequestLimits limits{.model = model.name,
                             .vocab_size = model.spec.vocab_size,
                             .max_model_len = model.max_model_len,
                             .chat_template = true};
  WarmPrompt warm{.name = fields.text("name", "line " + std::to_string(number), kMaxNameBytes),
                  .tokens = {},
                  .salt = fields.text("cache_salt", "", kMaxSaltBytes),
                  .ttl_s = fields.number("ttl", 0, 0, kMaxTtl)};
  if (const Json* prompt = fields.find("prompt"); prompt != nullptr) {
    if (prompt->is_array())
      warm.tokens = ids_value(*prompt, "prompt", static_cast<size_t>(model.max_model_len), limits.vocab_size);
    else
      warm.tokens =
          text_ids({.text = fields.text("prompt", "", SIZE_MAX), .max_ids = model.max_model_len}, *model.tokenizer);
  } else {
    const bool asked = fields.has("add_generation_prompt");
    ChatPrompt chat = read_chat_prompt(fields, limits);
    if (!asked) chat.add_generation_prompt = false;
    warm.tokens = chat_ids(render_chat(chat, model), std::nullopt, model.max_model_len, model);
  }
  if (const auto unknown = fields.unknown(); !unknown.empty())
    refuse(unknown.front(), "is not a field of a warm-up line");
  const auto n = static_cast<int64_t>(warm.tokens.size());
  if (n == 0 || n > model.max_model_len) refuse("prompt", "expected 1 to {} tokens, found {}", model.max_model_len, n);
  return warm;
}

}  // namespace

std::vector<WarmPrompt> read_warmup_file(const std::string& path, const ServedModel& model) {
  std::vector<WarmPrompt> prompts;
  if (path.empty()) return prompts;
  const std::string text = read_regular_file(path);
  int64_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      prompts.push_back(read_line(line, number, model));
    } catch (const ApiError& e) {
      fail(ErrorKind::input, "{}:{}: {}", path, number, e.what());
    }
  }
  return prompts;
}

}  // namespace rw
