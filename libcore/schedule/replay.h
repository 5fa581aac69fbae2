// Runs the stages' lists against each other, each action as soon as it can: one such run decides whether they can run
// in any timing, since a list is sequential, a channel is a queue, and a sender never waits.
#pragma once
#include <string>
#include <vector>

#include "libcore/schedule/pipeline.h"

namespace rw {

struct Replay {
  std::string fault;  // "" when all actions ran; otherwise what is wrong and where
  Timeline timeline;  // of what ran
};
// Seconds of each stage's actions, in the order of its list, and of a message.
struct ReplayTimes {
  std::vector<std::vector<double>> of_stage;
  double message = 0;
};
// Without times everything takes 0 seconds.
Replay replay(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage, const ReplayTimes* times);

// "forward of chunk 1, micro-batch 3"
std::string action_text(const Action& action);

}  // namespace rw
