// What all parts of one reply have in common.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/text/tokenizer.h"

namespace rw {

struct ReplyShape {
  bool chat = false;
  std::string id;  // "chatcmpl-...", "cmpl-..."
  int64_t created = 0;
  std::string model, fingerprint;
  bool logprobs = false;
  bool include_usage = false, continuous_usage = false;  // of streams
  bool token_ids = false;
  const Tokenizer* tokenizer = nullptr;
  bool skip_special_tokens = true;
};

// {"id":...,"object":...,"created":...,"model":...,"system_fingerprint":...  without an end
std::string reply_head(const ReplyShape& shape, bool stream);

struct ReplyUsage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
};
void append_usage(std::string& out, const ReplyUsage& usage);  // the object

}  // namespace rw
