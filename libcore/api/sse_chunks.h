// The events of a streamed reply. What is the same in all of a request's chunks is written once.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/api/api_error.h"
#include "libcore/api/reply_shape.h"
#include "libcore/serve/request.h"

namespace rw {

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSseKeepAlive = ": keep-alive\n\n";

// What one choice adds.
struct ChoiceChunk {
  int64_t index = 0;
  bool first = false;  // of this choice: a chat's has the role
  std::string_view text;
  std::string_view logprobs;                         // JSON; empty: null
  const std::vector<int32_t>* token_ids = nullptr;   // when asked for
  const std::vector<int32_t>* prompt_ids = nullptr;  // with the first
  std::string_view finish_reason;                    // empty: null
  std::string_view stop_reason;                      // JSON; empty: null, and told with the finish_reason alone
  const ReplyUsage* usage = nullptr;                 // so far, when asked for
  std::string_view timings;                          // JSON; empty: none
};

class SseChunks {
 public:
  explicit SseChunks(const ReplyShape& shape);
  std::string choice(const ChoiceChunk& chunk) const;
  // Before [DONE]: no choices.
  std::string usage(const ReplyUsage& usage, std::string_view timings) const;
  static std::string error(const Refusal& refusal);

 private:
  bool chat_, include_usage_;
  std::string head_;  // up to the choice's index
};

}  // namespace rw
