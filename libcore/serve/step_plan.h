// One step of the engine as data: what the scheduler decides, what rank 0 sends to the others, what the log holds.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/serve/sampling.h"

namespace rw {

using SequenceId = int64_t;

// From here on the ranks know this sequence. A preempted one starts again with its output so far.
struct SequenceStart {
  SequenceId id;
  std::vector<int32_t> tokens;  // prompt, then the n_output tokens drawn before
  int64_t n_output = 0;
  SamplingParams sampling;
  int64_t prompt_logprobs = -1;  // top_logprobs of prompt positions that are fed; -1: none
  bool operator==(const SequenceStart&) const = default;
};

// Tokens [first, first + n) of a sequence go through the model; their keys and values go to its pages.
struct SequenceRows {
  SequenceId id;
  int64_t first, n;
  bool sample;  // draw the next token from the last row
  bool operator==(const SequenceRows&) const = default;
};

// Pages appended to a sequence's table.
struct PageGrant {
  SequenceId id;
  std::vector<int32_t> pages;
  bool operator==(const PageGrant&) const = default;
};

struct StepPlan {
  int64_t step = 0;
  std::vector<SequenceId> ends;  // forgotten, before anything else
  std::vector<SequenceStart> starts;
  std::vector<PageGrant> grants;
  std::vector<SequenceRows> rows;  // at most one per sequence
  bool stop = false;               // the ranks leave their loop

  int64_t n_tokens() const;
  bool operator==(const StepPlan&) const = default;
};

// For a message between ranks of one build.
std::vector<std::byte> pack_plan(const StepPlan& plan);
StepPlan unpack_plan(std::span<const std::byte> bytes);  // CHECKs its form
// For the event log.
Json plan_json(const StepPlan& plan);

struct SequenceResult {
  SequenceId id;
  bool sampled = false;
  Sampled token;
  std::vector<Sampled> prompt = {};  // of tokens first+1 .. first+n that are part of the prompt
};
struct StepOutput {
  std::vector<SequenceResult> sequences;  // as plan.rows
};

}  // namespace rw
