#include "libcore/schedule/pipeline.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

// A stage's forwards, or its backwards, in the order in which all stages run them.
struct Work {
  int32_t chunk, micro_batch;
};

// All micro-batches through one chunk before the next.
std::vector<Work> chunk_by_chunk(const PipelineShape& shape) {
  std::vector<Work> order;
  for (int c = 0; c < shape.chunks; ++c)
    for (int m = 0; m < shape.micro_batches; ++m) order.push_back({c, m});
  return order;
}

// Micro-batches in groups of `stages`; what is left over is shared among the groups, because a smaller group at the end
// can wait in a circle with its own backwards.
int64_t n_groups(const PipelineShape& shape) { return std::max(1, shape.micro_batches / shape.stages); }

// A group goes through every chunk before the next group: its first micro-batch comes back to stage 0 for its next
// chunk just as its last one leaves for the one before.
std::vector<Work> group_by_group(const PipelineShape& shape) {
  std::vector<Work> order;
  const int64_t n = n_groups(shape);
  for (int64_t g = 0; g < n; ++g)
    for (int32_t c = 0; c < shape.chunks; ++c)
      for (int64_t m = shape.micro_batches * g / n; m < shape.micro_batches * (g + 1) / n; ++m)
        order.push_back({c, static_cast<int32_t>(m)});
  return order;
}

// Backwards go through the chunks from the last to the first; micro-batches ascend in every schedule, so that a
// weight's gradient is the same sum, in the same order, in all of them.
std::vector<Work> mirrored(const std::vector<Work>& order, int chunks) {
  std::vector<Work> result;
  for (const Work& w : order) result.push_back({chunks - 1 - w.chunk, w.micro_batch});
  return result;
}

// Forwards that a stage runs before it takes turns: what it takes until its first backward's gradient is there. One
// chunk: one for each later stage. Several: all earlier chunks of a whole group, and two for each later stage, because
// the forwards of a group's last chunk and its backwards both pass them.
int64_t warm_up(const PipelineShape& shape, int stage) {
  const int64_t later = shape.stages - 1 - stage;
  if (shape.chunks == 1) return later;
  const int64_t groups = n_groups(shape), largest_group = (shape.micro_batches + groups - 1) / groups;
  return 2 * later + (shape.chunks - 1) * largest_group;
}

// Weight halves that a stage may keep waiting (Qi et al. 2023, ZB-H1): as many as its activations are fewer than those
// of stage 0, so that every stage holds at most what stage 0 holds in 1F1B.
int weight_backlog(const PipelineShape& shape, int stage) { return shape.chunks == 1 ? stage : 2 * stage; }

std::vector<Action> gpipe_actions(const PipelineShape& shape) {
  std::vector<Action> actions;
  const std::vector<Work> order = chunk_by_chunk(shape);
  for (const Work& f : order) actions.push_back({ActionKind::forward, f.chunk, f.micro_batch});
  for (const Work& b : mirrored(order, shape.chunks)) actions.push_back({ActionKind::backward, b.chunk, b.micro_batch});
  return actions;
}

std::vector<Action> one_f_one_b_actions(const PipelineShape& shape, int stage) {
  const bool halves = shape.kind == ScheduleKind::zb_h1;
  const std::vector<Work> forwards = group_by_group(shape), backwards = mirrored(forwards, shape.chunks);
  const auto n = static_cast<int64_t>(forwards.size());
  const int64_t ahead = warm_up(shape, stage), backlog = halves ? weight_backlog(shape, stage) : 0;
  std::vector<Action> actions;
  const auto add = [&](ActionKind kind, const Work& w) { actions.push_back({kind, w.chunk, w.micro_batch}); };
  const auto at = [](const std::vector<Work>& order, int64_t i) { return order[static_cast<size_t>(i)]; };
  for (int64_t i = 0; i < std::min(ahead, n); ++i) add(ActionKind::forward, at(forwards, i));
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n) add(ActionKind::forward, at(forwards, i + ahead));
    add(halves ? ActionKind::backward_input : ActionKind::backward, at(backwards, i));
    if (halves && i >= backlog) add(ActionKind::backward_weight, at(backwards, i - backlog));
  }
  if (halves)
    for (int64_t i = std::max<int64_t>(0, n - backlog); i < n; ++i) add(ActionKind::backward_weight, at(backwards, i));
  return actions;
}

}  // namespace

const char* schedule_name(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::gpipe: return "gpipe";
    case ScheduleKind::one_f_one_b: return "1f1b";
    case ScheduleKind::interleaved: return "interleaved";
    case ScheduleKind::zb_h1: return "zb-h1";
  }
  return "?";
}

std::vector<Action> pipeline_actions(const PipelineShape& shape, int stage) {
  CHECK(shape.stages >= 1 && shape.chunks >= 1 && shape.micro_batches >= 1, "%d stages, %d chunks, %d micro-batches",
        shape.stages, shape.chunks, shape.micro_batches);
  CHECK(stage >= 0 && stage < shape.stages, "stage %d of %d", stage, shape.stages);
  return shape.kind == ScheduleKind::gpipe ? gpipe_actions(shape) : one_f_one_b_actions(shape, stage);
}

std::vector<Live> live_of(const std::vector<Action>& actions, int chunks) {
  std::vector<Live> now(static_cast<size_t>(chunks)), most = now;
  for (const Action& a : actions) {
    CHECK(a.chunk >= 0 && a.chunk < chunks, "chunk %d of %d", a.chunk, chunks);
    Live& held = now[static_cast<size_t>(a.chunk)];
    Live& peak = most[static_cast<size_t>(a.chunk)];
    if (a.kind == ActionKind::forward) peak.activations = std::max(peak.activations, ++held.activations);
    if (a.kind == ActionKind::backward_input)
      peak.weight_gradients = std::max(peak.weight_gradients, ++held.weight_gradients);
    if (a.kind == ActionKind::backward_weight) --held.weight_gradients;
    if (a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight) --held.activations;
  }
  return most;
}

}  // namespace rw
