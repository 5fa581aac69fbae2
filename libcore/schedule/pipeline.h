// Pipeline schedules as data: what each stage does, in order. Pure: no rank, no clock, no communication. A model's
// layers are dealt to stages * chunks virtual stages; virtual stage v lies on stage v % stages as its chunk v / stages.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace rw {

enum class ScheduleKind : uint8_t {
  gpipe,        // Huang et al. 2019: all forwards, then all backwards
  one_f_one_b,  // Narayanan et al. 2019 (PipeDream-flush): warm-up, then one forward, one backward
  interleaved,  // Narayanan et al. 2021: 1F1B over several chunks a stage
  zb_h1,        // Qi et al. 2023: 1F1B with the weight gradients moved into the bubble
};
const char* schedule_name(ScheduleKind kind);  // "gpipe", "1f1b", "interleaved", "zb-h1"

// backward is both halves at once; zb_h1 has them apart: backward_input, later backward_weight.
enum class ActionKind : uint8_t { forward, backward, backward_input, backward_weight };
struct Action {
  ActionKind kind;
  int32_t chunk, micro_batch;
  bool operator==(const Action&) const = default;
};

struct PipelineShape {
  ScheduleKind kind = ScheduleKind::one_f_one_b;
  int stages = 1, chunks = 1, micro_batches = 1;
};

// What a stage does in a step. Every chunk and micro-batch once forward and once backward (or once each half).
// Activations travel from virtual stage v to v + 1, their gradients back; between any two stages the messages of each
// of the two directions are received in the order in which they are sent (check_schedule holds this).
std::vector<Action> pipeline_actions(const PipelineShape& shape, int stage);

// The most of a chunk that a stage holds at a time: activations, from a forward to its backward (its weight half); and
// gradients that wait for their weight half, from backward_input to backward_weight, both included.
struct Live {
  int activations = 0, weight_gradients = 0;
};
std::vector<Live> live_of(const std::vector<Action>& actions, int chunks);  // by chunk

// Runs all stages' lists against each other: "" when every action can run, once, after what it needs, in whatever
// timing, with messages in order; otherwise what is wrong and where.
std::string check_schedule(const PipelineShape& shape);
std::string check_actions(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage);

// Seconds of a chunk's work on a stage, and of a message between neighbouring virtual stages.
struct StageTimes {
  std::vector<std::vector<double>> forward, backward_input, backward_weight;  // (stages)(chunks)
  double message = 0;
};
struct TimedAction {
  Action action;
  double begin, end;
};
struct Timeline {
  std::vector<std::vector<TimedAction>> of_stage;
  double seconds = 0;  // of the whole step
  double bubble = 0;   // share of stages * seconds in which a stage has nothing to do
};
// The schedule as an event simulation: an action begins when its stage is free and what it needs has arrived.
Timeline time_schedule(const PipelineShape& shape, const StageTimes& times);
Timeline time_actions(const PipelineShape& shape, const std::vector<std::vector<Action>>& of_stage,
                      const StageTimes& times);

// What a measured step would have taken by its dependencies alone, each action with its own measured seconds: what is
// more than that was lost in the execution.
Timeline time_again(const PipelineShape& shape, const std::vector<std::vector<TimedAction>>& measured, double message);
// Median seconds from the end of an action to the beginning of the one on another stage that stood ready for its
// message; 0 when none did. `measured`: (stages), on one clock.
double message_seconds(const PipelineShape& shape, const std::vector<std::vector<TimedAction>>& measured);

}  // namespace rw
