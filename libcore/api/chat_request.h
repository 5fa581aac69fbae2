// POST /v1/chat/completions: from the body to a plain struct.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "libcore/api/generation_request.h"

namespace rw {

// Messages and what a template sees beside them: of /v1/chat/completions, /tokenize and /apply-template.
struct ChatPrompt {
  // Shared because Json is incomplete in headers, which unique_ptr cannot destroy.
  std::shared_ptr<const Json> messages;   // a list of at least one {"role": ..., "content": ...}
  std::shared_ptr<const Json> variables;  // an object: tools, documents, chat_template_kwargs
  bool add_generation_prompt = true, continue_final_message = false;
  std::string chat_template;  // of the request itself; empty: the server's
};

struct ChatRequest {
  GenerationRequest common;
  ChatPrompt prompt;
};

ChatPrompt read_chat_prompt(RequestFields& fields, const RequestLimits& limits);
// ApiError (an Error{input}) for whatever is not such a request.
ChatRequest parse_chat_request(std::string_view body, const RequestLimits& limits);

}  // namespace rw
