// From what a request gives as its prompt to token ids, with exactly the special tokens it should have, and the room
// that is left for the answer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/api/chat_request.h"
#include "libcore/api/completion_request.h"
#include "libcore/api/served_model.h"

namespace rw {

struct PromptTokens {
  std::string text;  // what was tokenized; empty when ids were given
  std::vector<int32_t> ids;
};

// Ids of a text, with the tokenizer's template around them when asked for, but nothing twice: a text that begins with
// <s> already does not get another one. max_ids > 0: ApiError (400) naming `param` as soon as it is clear that there
// are more, which the length of the longest token tells without tokenizing megabytes.
struct TextToIds {
  const std::string& text;
  bool add_special_tokens = true;
  int64_t max_ids = 0;
  const char* param = "prompt";
  Tokenizer::Specials specials = Tokenizer::Specials::match;
};
std::vector<int32_t> text_ids(const TextToIds& what, const Tokenizer& tokenizer);

// `truncate` > 0 keeps the last ones alone.
PromptTokens completion_prompt(const Prompt& prompt, const GenerationRequest& request, const ServedModel& model);
// The rendered chat. A model's own template writes the special tokens itself; a named one gets those of the tokenizer
// when it has none.
std::string render_chat(const ChatPrompt& prompt, const ServedModel& model);
PromptTokens chat_prompt(const ChatPrompt& prompt, const GenerationRequest& request, const ServedModel& model);
// For /tokenize; add_special_tokens as a request may say it.
std::vector<int32_t> chat_ids(const std::string& rendered, std::optional<bool> add_special_tokens, int64_t max_ids,
                              const ServedModel& model);

// Text of ids as an answer would show it.
std::string visible_text(const std::vector<int32_t>& ids, bool skip_special_tokens, const Tokenizer& tokenizer);

// How many tokens the answer may have. ApiError (400, context_length_exceeded) when prompt and max_tokens do not fit
// together; without max_tokens, or where `is_default`, it is what fits.
struct AnswerRoom {
  int64_t n_prompt;
  std::optional<int64_t> max_tokens;
  bool is_default = false;
  int64_t max_model_len;
  const char* param;  // "prompt", "messages"
};
int64_t answer_room(const AnswerRoom& room);

}  // namespace rw
