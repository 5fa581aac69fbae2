// The JSON body of a request to an OpenAI-compatible server.
#pragma once
#include <string>

#include "libcore/bench/load/datasets.h"

namespace rw {

struct BodyOptions {
  bool chat = false;  // /v1/chat/completions, else /v1/completions
  std::string model;
  double temperature = 0;
  bool exact_length = true;  // ignore_eos and min_tokens: the answer has the planned length
  bool plain = false;        // OpenAI's own fields alone
  bool ours = false;         // the server is dserve: token ids, times and cache control too
  bool cached = true;        // false: asks a server of ours to leave its prefix cache out
  std::string extra = "{}";  // JSON object, merged last
};
// Error{usage} where the endpoint cannot take the prompt: token ids for chat, messages for completions.
std::string request_body(const PlannedPrompt& prompt, const BodyOptions& options);
const char* request_path(const BodyOptions& options);

}  // namespace rw
