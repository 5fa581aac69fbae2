// The training run: sets up from a TrainSpec, loops over steps, validates, saves, stops cleanly. It prints nothing
// itself: what a person should see goes to the observer (called on rank 0 only, but for rank_step).
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "libcore/comm/comm.h"
#include "libcore/spec/train_spec.h"

namespace rw {

struct StepReport {
  int64_t step, steps;
  double loss, lr, grad_norm, tokens_per_s, mfu_causal;
};

struct TrainObserver {
  std::function<void(const std::string& phase, double seconds)> phase = [](const std::string&, double) {};
  std::function<void(const std::string& line)> note = [](const std::string&) {};
  std::function<void(const std::string& line)> warning = [](const std::string&) {};
  std::function<void(const StepReport&)> step = [](const StepReport&) {};
  std::function<void(int64_t step)> rank_step = [](int64_t) {};  // on every rank, when it has done a step
};

struct TrainSummary {
  std::string
      json;  // one object: steps, loss, val_loss, val_loss_per_byte, tokens_per_s, mfu, params, wall_s, checkpoint
  bool interrupted;  // stopped by a signal after a clean save: exit 75
};

// Collective over world. Error as the outside fails; on a signal it saves and returns interrupted.
TrainSummary train(const TrainSpec& spec, Comm& world, const TrainObserver& observer);

}  // namespace rw
