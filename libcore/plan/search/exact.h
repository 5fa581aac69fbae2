// The plan that is handed out is dry-run: its memory is counted by the trainer's own code, not by formula.
#pragma once
#include "libcore/plan/search/search.h"

namespace rw {

// Replaces a prediction's memory by the dry run's, of the stage that takes most (those that the formula puts near the
// worst are tried).
void take_exact_memory(const PlanQuestion& question, Prediction& plan);

}  // namespace rw
