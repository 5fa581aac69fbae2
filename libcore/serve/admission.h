// Whether a request is let in, decided at the door from what the engine last said of itself. Pure.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/serve/engine.h"

namespace rw {

struct AdmissionPolicy {
  int64_t max_model_len = 0, max_seqs = 0, max_queue = 0;
  double slo_ttft_s = 0;  // 0: none
};

// What is known when a request arrives.
struct Load {
  int64_t running = 0, waiting = 0;  // waiting: sequences handed over and not yet seen by the scheduler included
  bool blocked = false;              // the first in the queue found no room in the last step
  int64_t backlog_tokens = 0;        // prompt tokens before it
  double prefill_s_per_token = 0;    // measured; 0: not yet
  double step_s = 0;                 // of a step of running sequences; 0: not yet
  double sequence_s = 0;             // from admission to end, lately; 0: not yet
  int64_t usable_tokens = 0;         // of the pool, what the warm-up keeps left out
};

struct Asked {
  int64_t sequences = 0, longest_prompt = 0, longest_total = 0;  // total: with max_tokens
};

// Seconds until a sequence that arrives now has its first token: the tokens before it and its own, and, where all
// places are taken, the places that must become free first.
double predicted_ttft_s(const Load& load, const AdmissionPolicy& policy, int64_t prompt_tokens);

// accepted, too_long, queue_full or too_slow, with retry_after_s and message; not the ids.
Admission admit(const Load& load, const AdmissionPolicy& policy, const Asked& asked);

}  // namespace rw
