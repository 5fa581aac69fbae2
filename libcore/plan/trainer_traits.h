// How a trainer does what a layout says, where trainers differ: facts about published ones, so that their runs can be
// predicted as well as ours, and two fitted numbers each.
#pragma once
#include <string>

namespace rw {

struct TrainerTraits {
  std::string name = "dtrain";
  // Two numbers fitted to a trainer's published runs.
  double compute_factor = 1;  // of its compute time, against the device's calibration
  double overhead = 0;        // of the step, added
};

}  // namespace rw
