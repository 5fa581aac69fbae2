// When a stage posts its receives where a device does the waiting. A posted receive is a kernel there, which holds a
// part of the GPU until its message comes, and peers must not depend on who of them launched what first. So a receive
// is posted one action ahead at most, and whether it is follows from the list alone, never from what has arrived.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/schedule/pipeline.h"

namespace rw {

// Whether an action takes a message: a forward its activations, a backward or backward_input their gradient.
bool receives(const PipelineShape& shape, int stage, const Action& action);

// For each action of the stage's list the actions whose receives are posted before it runs: its own, where that was not
// yet, and the next one's where its memory is free by then. A gradient lies where the activations were that the forward
// sent: that send is waited for before. `slots`: micro-batches that a chunk has memory for, at least what live_of()
// says.
std::vector<std::vector<Action>> receives_before(const PipelineShape& shape, int stage, std::span<const int64_t> slots);

}  // namespace rw
