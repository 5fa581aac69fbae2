#include "libcore/api/completion_request.h"

#include <nlohmann/json.hpp>

#include "libcore/api/api_error.h"
#include "libcore/api/request_body.h"

namespace rw {
namespace {

constexpr int64_t kDefaultMaxTokens = 16;

Prompt text_prompt(const Json& value, const std::string& path) {
  const auto& text = value.get_ref<const std::string&>();
  if (text.empty()) refuse(path, "expected text, found an empty string");
  return {.text = text};
}

Prompt ids_prompt(const Json& value, const std::string& path, const RequestLimits& limits, size_t max_ids) {
  Prompt prompt{.text = {}, .ids = ids_value(value, path, max_ids, limits.vocab_size), .is_ids = true};
  if (prompt.ids.empty()) refuse(path, "expected token ids, found an empty list");
  return prompt;
}

// A string, ids, or a list of either.
std::vector<Prompt> read_prompts(RequestFields& fields, const RequestLimits& limits, size_t max_ids) {
  const Json* value = fields.find("prompt");
  if (value == nullptr) refuse("prompt", "expected a string, a list of strings, or token ids, found none");
  if (value->is_string()) return {text_prompt(*value, "prompt")};
  if (!value->is_array())
    refuse("prompt", "expected a string, a list of strings, or token ids, found {}", found(*value));
  if (value->empty()) refuse("prompt", "expected at least one prompt, found an empty list");
  if (value->front().is_number()) return {ids_prompt(*value, "prompt", limits, max_ids)};
  if (static_cast<int64_t>(value->size()) > limits.max_choices)
    refuse("prompt", "expected at most {} prompts in a request, found {}", limits.max_choices, value->size());
  std::vector<Prompt> prompts;
  for (const Json& item : *value) {
    const std::string path = fmt::format("prompt[{}]", prompts.size());
    if (item.is_string()) prompts.push_back(text_prompt(item, path));
    else if (item.is_array()) prompts.push_back(ids_prompt(item, path, limits, max_ids));
    else refuse(path, "expected a string or a list of token ids, found {}", found(item));
  }
  return prompts;
}

}  // namespace

CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits) {
  const Json json = parse_request_body(body);
  RequestFields fields(json);
  CompletionRequest r;
  r.common = read_generation_request(fields, limits);
  r.default_max_tokens = !r.common.max_tokens.has_value();
  if (r.default_max_tokens) r.common.max_tokens = std::max(kDefaultMaxTokens, r.common.sampling.min_tokens);
  // Longer lists are refused before they are copied, unless they are to be cut.
  const auto max_ids = static_cast<size_t>(r.common.truncate_prompt_tokens > 0 ? INT32_MAX : limits.max_model_len);
  r.prompts = read_prompts(fields, limits, max_ids);
  const auto n_choices = static_cast<int64_t>(r.prompts.size()) * r.common.n;
  if (n_choices > limits.max_choices)
    refuse("n", "expected at most {} choices in a request, found {} prompts of {}", limits.max_choices,
           r.prompts.size(), r.common.n);
  r.common.logprobs = fields.integer("logprobs", -1, 0, limits.max_logprobs);
  r.echo = fields.boolean("echo", false);
  if (const auto best_of = fields.integer("best_of", 1, INT32_MAX); best_of && *best_of != r.common.n)
    refuse("best_of", "is not supported beyond n, which is {}, found {}", r.common.n, *best_of);
  fields.only("suffix", "null", "");
  for (std::string& name : fields.unknown()) r.common.unknown.push_back(std::move(name));
  return r;
}

}  // namespace rw
