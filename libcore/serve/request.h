// What the engine is asked for and what it tells: one sequence of tokens. A request of several choices is several of
// these.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libcore/serve/sampling.h"
#include "libcore/serve/step_plan.h"

namespace rw {

struct SequenceRequest {
  std::string request_id;       // for logs and spans
  int64_t choice = 0;           // which of the request's choices this is; comes back in events
  std::vector<int32_t> prompt;  // at least one id, all in the vocabulary
  int64_t max_tokens = 16;      // new tokens at most; 0: prompt scores alone
  SamplingParams sampling;      // sampling.ends: filled by the engine from the model's and stop_token_ids
  std::vector<std::string> stop = {};
  std::vector<int32_t> stop_token_ids = {};
  bool include_stop = false;  // the stop string stays in the text
  bool ignore_eos = false;
  bool skip_special_tokens = true;
  int64_t prompt_logprobs = -1;  // as SequenceStart
  bool cache_prompt = true;      // reads and leaves prefixes in the cache
  std::string cache_salt = {};   // only requests of the same salt share prefixes
  int64_t priority = 0;          // lower goes first
  double received_s = 0;         // now_s() when the request arrived; 0: now
};

// Seconds of now_s(); 0: not reached.
struct SequenceTimes {
  double received = 0, queued = 0, scheduled = 0, first_token = 0, last_token = 0;
  double preempted_s = 0;  // sum of waits after preemptions
  int64_t n_preemptions = 0;
};

struct SequenceUsage {
  int64_t prompt_tokens = 0, cached_tokens = 0;
  int64_t completion_tokens = 0;  // drawn tokens, an end-of-text included
};

enum class FinishReason : uint8_t { none, stop, length, cancelled, error };
const char* finish_reason_name(FinishReason r);  // "stop", "length", "abort", "error"

struct TokenOut {
  Sampled token;
  std::string bytes;  // of the token
};

// Some tokens of a sequence, or its end, or both.
struct SequenceEvent {
  SequenceId sequence = -1;
  int64_t choice = 0;
  std::string text;              // whole characters that may be shown now
  std::vector<TokenOut> tokens;  // drawn since the last event
  std::vector<TokenOut> prompt;  // scores of prompt tokens 1.., all in one event, when asked for
  FinishReason finish = FinishReason::none;
  std::string stop_string;  // the one that matched
  int32_t stop_token = -1;  // the id that matched
  std::string error;        // with FinishReason::error
  SequenceUsage usage;
  SequenceTimes times;
};

// Where a request's events go. Called on the engine's output thread, in order; must not block. Shared: the engine holds
// it until the sequence's last event.
class EventSink {
 public:
  virtual ~EventSink() = default;
  virtual void push(const SequenceEvent& event) = 0;
};

}  // namespace rw
