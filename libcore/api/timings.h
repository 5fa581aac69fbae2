// Where a sequence's time went.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/serve/request.h"

namespace rw {

// Seconds; 0 for what was not reached.
struct Timings {
  double queue_s = 0;    // queued until it was first scheduled
  double prefill_s = 0;  // until its first token
  double decode_s = 0;   // first to last token, waits after preemptions included
  double preempted_s = 0;
  double ttft_s = 0, total_s = 0;  // since the request arrived
  int64_t preemptions = 0;
  bool operator==(const Timings&) const = default;
};
Timings timings_of(const SequenceTimes& times);
// Of several choices: the longest of each, the preemptions of all.
void take_longest(Timings& all, const Timings& one);
// {"queue_ms":...,"prefill_ms":...,"decode_ms":...,"preempted_ms":...,"ttft_ms":...,"total_ms":...,"preemptions":...,
// "cached_tokens":...}
std::string timings_json(const Timings& timings, int64_t cached_tokens);

}  // namespace rw
