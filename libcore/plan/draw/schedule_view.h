// A pipeline step to look at: its timeline, and the memory that its stages hold over it.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/schedule/pipeline.h"

namespace rw {

struct ScheduleView {
  PipelineShape shape;
  Timeline timeline;
  StageTimes times;   // that the timeline was made with; empty stages: unknown, then no formula is given
  std::string title;  // model and layout; may be empty
  // (stages)(chunks): what one micro-batch keeps from its forward to its backward (its weight half).
  std::vector<std::vector<double>> kept;
  std::vector<double> base;  // (stages): there all the time (weights, gradients, optimizer state); empty: none
  bool in_bytes = false;     // kept, base are bytes; otherwise shares of a stage's micro-batch
};

// Forwards and backwards (or their halves) of all stages. Beyond the most, pictures and JSON would take half a GiB.
int64_t action_count(const PipelineShape& shape);
inline constexpr int64_t kMostDrawnActions = 1 << 18;

// A step of equal stages: seconds of a micro-batch through a stage's all chunks; `kept` counts micro-batches.
struct EvenStages {
  PipelineShape shape;
  double forward_s = 0, backward_s = 0;  // the backward's halves are equal
  double message_s = 0;
};
ScheduleView even_schedule(const EvenStages& stages);

// Memory of a stage: from `at` on it holds `amount`, until the next. Ascending, first at 0.
struct MemoryStep {
  double at = 0, amount = 0;
};
std::vector<MemoryStep> memory_over_time(const ScheduleView& view, int stage);
double peak_memory(const ScheduleView& view, int stage);
double busy_seconds(const ScheduleView& view, int stage);

// The bubble's share in closed form, where one is known for the schedule: all stages and chunks alike, messages that
// take no time, as many micro-batches as stages at least (interleaved: a multiple of them).
//   (p - 1) / (v m + p - 1): GPipe, 1F1B (one chunk), interleaved (Narayanan et al. 2021);
//   (p - 1)(F + B - W) over m (F + B + W) and itself: ZB-H1 (Qi et al. 2023, table 2), one chunk, F + B >= W.
std::optional<double> known_bubble(const ScheduleView& view);

// A table of the stages, the bubble beside its formula, and the timeline in letters when it fits into `width` columns.
std::string schedule_text(const ScheduleView& view, int width);
std::string ascii_timeline(const ScheduleView& view, int width);  // "" when it does not fit
Json schedule_json(const ScheduleView& view);

}  // namespace rw
