// What happened around a step: before a parameter is blamed for a jump of the loss, the events and measurements near it
// are asked. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/bench/doctor/training_facts.h"

namespace rw {

// In the order in which they are asked. lr_jump: the learning rate moved by more than its schedule moves it.
enum class NearKind : uint8_t {
  failure,
  resume,
  skip,
  data_stall,
  late_rank,
  slow_step,
  checkpoint,
  clock_drop,
  lr_jump
};
struct NearEvent {
  NearKind kind;
  int64_t step;
  std::string text;  // "resumed at step 120"
};
struct AroundSettings {
  int64_t steps_before = 5, steps_after = 1;  // what comes after a jump did not make it, but may be the same moment
};
std::vector<NearEvent> around(const RunView& view, int64_t step, const AroundSettings& settings = {});
// Steps whose learning rate is more than 1.5 times, or less than 1/1.5 of the step before's, beyond the warm-up and
// what the schedule did at that pace before.
std::vector<int64_t> lr_jumps(const RunView& view);

}  // namespace rw
