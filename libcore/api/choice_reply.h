// One choice of a reply: what its events add, as a chunk each or gathered to a whole one.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/api/logprobs_json.h"
#include "libcore/api/reply_shape.h"
#include "libcore/api/sse_chunks.h"
#include "libcore/serve/request.h"

namespace rw {

class ChoiceReply {
 public:
  struct Spec {
    int64_t index = 0;
    const std::vector<int32_t>* prompt_ids = nullptr;  // outlive this
    const std::string* echo = nullptr;                 // text that goes before the answer; null: none
    const std::vector<int32_t>* stop_token_ids = nullptr;
  };
  ChoiceReply(const ReplyShape& shape, const Spec& spec);  // both outlive this

  // The event's part of the reply in text() and the like; false when it shows nothing.
  bool take(const SequenceEvent& event);
  bool finished() const { return finish_ != FinishReason::none; }
  // After take: a chunk of what it brought, which is then gone.
  std::string chunk(const SseChunks& chunks, const ReplyUsage* usage, std::string_view timings);
  // When finished: {"index":...,...}, of all that came.
  void append_whole(std::string& out);

  int64_t completion_tokens() const { return completion_tokens_; }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  std::string logprobs();  // JSON; empty: none
  std::string stop_reason() const;

  const ReplyShape& shape_;
  Spec spec_;
  CompletionLogprobs completion_logprobs_;
  std::string text_, chat_logprobs_, stop_string_;
  std::vector<int32_t> token_ids_;
  int64_t completion_tokens_ = 0, cached_tokens_ = 0;
  int32_t stop_token_ = -1;
  FinishReason finish_ = FinishReason::none;
  bool begun_ = false, sent_ = false;
};

}  // namespace rw
