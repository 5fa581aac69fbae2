// POST /v1/completions: from the body to a plain struct.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/api/generation_request.h"

namespace rw {

struct Prompt {
  std::string text;
  std::vector<int32_t> ids = {};  // when the request gave ids
  bool is_ids = false;
};

struct CompletionRequest {
  GenerationRequest common;  // max_tokens is always there (16 by default: limited by the context's room)
  bool default_max_tokens = false;
  std::vector<Prompt> prompts;  // none of them empty
  bool echo = false;
};

// ApiError (an Error{input}) for whatever is not such a request.
CompletionRequest parse_completion_request(std::string_view body, const RequestLimits& limits);

}  // namespace rw
