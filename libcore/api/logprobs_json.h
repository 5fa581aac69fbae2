// Logprobs of tokens in the API's two shapes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/serve/request.h"
#include "libcore/text/tokenizer.h"

namespace rw {

// Chats: one entry of "content": {"token":...,"logprob":...,"bytes":[...],"top_logprobs":[...]}. A token that is part
// of a character reads U+FFFD; its bytes are exact.
void append_chat_logprob(std::string& out, const TokenOut& token, const Tokenizer& tokenizer);

// Completions: parallel lists of tokens. A token that is not UTF-8 by itself reads "bytes:\xe4\xbd"; the chosen token
// is among the top ones always.
class CompletionLogprobs {
 public:
  // hide_special: special tokens take no room in the text that text_offset points into.
  CompletionLogprobs(const Tokenizer& tokenizer, bool hide_special)
      : tokenizer_(&tokenizer), hide_special_(hide_special) {}
  void add(const TokenOut& token);
  void add_first(int32_t id);  // a prompt's first token: nothing predicts it
  // {"tokens":[...],"token_logprobs":[...],"top_logprobs":[...],"text_offset":[...]} of what was added since the last
  // take; offsets go on.
  void take(std::string& out);

 private:
  void add_token(int32_t id, std::string_view bytes);

  const Tokenizer* tokenizer_;
  bool hide_special_;
  std::string tokens_, logprobs_, top_, offsets_;
  int64_t characters_ = 0;  // begun so far
};

}  // namespace rw
