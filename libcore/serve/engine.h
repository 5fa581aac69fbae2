// The engine: a thread that asks the scheduler for a plan, runs it, and tells what came of it. Requests and
// cancellations go in through one queue, events come out through another; nothing else touches it.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "libcore/serve/request.h"

namespace rw {

// What the engine is doing, copied once a step. Token counts are since the start.
struct EngineStats {
  int64_t running = 0, waiting = 0;   // sequences; waiting includes preempted and those not yet seen by the engine
  int64_t waiting_tokens = 0;         // prompt tokens of waiting sequences and of running ones not yet fed
  int64_t used_pages = 0;             // neither free nor merely cached
  int64_t pages = 0, free_pages = 0;  // of the pool; free: nobody's
  int64_t cached_pages = 0, pinned_pages = 0;  // held by the prefix tree; of them in use or pinned by the warm-up
  int64_t used_pages_high_water = 0;           // not free and not merely cached, at most so far
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  int64_t prefix_queries = 0, prefix_hits = 0, evicted_pages = 0;  // queries, hits in tokens
  int64_t preemptions = 0, steps = 0;
  int64_t finished_stop = 0, finished_length = 0, cancelled = 0, failed = 0;
  int64_t chunk_tokens = 0;                           // prefill tokens the last plan had room for
  double heartbeat_s = 0;                             // now_s() of the last turn of the loop
  double step_s = 0;                                  // of the last step
  double prefill_s_per_token = 0, decode_step_s = 0;  // the scheduler's present estimates
};

struct SequenceMemory {
  std::string request_id;
  SequenceId sequence;
  int64_t pages, tokens;
};
struct PrefixMemory {
  std::string name;  // of a warm-up entry, or the salt's digest
  int64_t pages, hits;
  bool pinned;
  double expires_s;  // now_s(); 0: never
};
struct EngineMemory {
  int64_t weights_bytes = 0, kv_bytes = 0, runtime_bytes = 0, page_bytes = 0;
  int64_t pages = 0, free_pages = 0, cached_pages = 0,
          partly_filled_tokens = 0;  // the last: room in taken pages without a token
  std::vector<SequenceMemory> sequences;
  std::vector<PrefixMemory> prefixes;
};

enum class EngineState : uint8_t { loading, ready, draining, stopped, failed };

// The answer to a request at the door.
struct Admission {
  enum class Verdict : uint8_t { accepted, too_long, queue_full, too_slow, not_serving } verdict = Verdict::accepted;
  SequenceId first = -1;     // accepted: ids first, first + 1, ...
  double retry_after_s = 0;  // queue_full, too_slow, not_serving
  std::string message;       // of a refusal: what was expected, found, what to do
};

class Engine {
 public:
  virtual ~Engine() = default;
  // All of a request's sequences, or none. Thread-safe, does not block on a step.
  virtual Admission submit(std::vector<SequenceRequest> sequences, std::shared_ptr<EventSink> sink) = 0;
  // Ends a sequence; its pages are back before the next step. Unknown and finished ids are ignored.
  virtual void cancel(SequenceId sequence) = 0;
  virtual EngineStats stats() const = 0;
  virtual EngineMemory memory() const = 0;
  virtual EngineState state() const = 0;
  virtual std::string failure() const = 0;  // why state is failed, naming rank and host
  // Refuses new requests; running ones go on.
  virtual void drain() = 0;
  // Ends what is left with an error event saying `why`, and the thread. Waits for it.
  virtual void stop(const std::string& why) = 0;
};

}  // namespace rw
