#include "libcore/plan/memory/held_slots.h"

#include <algorithm>

namespace rw {
namespace {

// Of the first n works of the order "a group of micro-batches through chunk 0, through chunk 1, ..., the next group":
// those of the chunk at `place`.
int64_t of_place(int64_t n, int64_t place, int64_t group, int64_t chunks) {
  const int64_t turn = group * chunks;
  return n / turn * group + std::clamp<int64_t>(n % turn - place * group, 0, group);
}

}  // namespace

std::vector<Live> held_slots(const PipelineShape& shape, int stage) {
  const int64_t m = shape.micro_batches, v = shape.chunks, later = shape.stages - 1 - stage;
  const bool halves = shape.kind == ScheduleKind::zb_h1;
  std::vector<Live> held(static_cast<size_t>(v));
  if (shape.kind == ScheduleKind::gpipe) {
    for (Live& h : held) h.activations = static_cast<int>(m);
    return held;
  }
  if (v == 1) {
    const int64_t backlog = halves ? stage : 0;
    held[0].activations = static_cast<int>(std::min(m, later + 1 + backlog));
    held[0].weight_gradients = halves ? static_cast<int>(std::min(m, backlog + 1)) : 0;
    return held;
  }
  const int64_t group = m < shape.stages ? m : shape.stages;
  if (m % group != 0) return live_of(pipeline_actions(shape, stage), shape.chunks);
  const int64_t n = m * v, ahead = 2 * later + (v - 1) * group, backlog = halves ? 2 * stage : 0;
  // After `backlog` backwards everything repeats with every turn of group * v.
  const int64_t last = std::min(n, backlog + group * v);
  for (int64_t c = 0; c < v; ++c) {
    Live& h = held[static_cast<size_t>(c)];
    const auto forwards = [&](int64_t i) { return of_place(i, c, group, v); };
    const auto backwards = [&](int64_t i) { return of_place(i, v - 1 - c, group, v); };
    int64_t activations = ahead >= n ? m : 0, weight_gradients = 0;
    for (int64_t i = 0; i < last; ++i) {
      const int64_t done = backwards(std::max<int64_t>(0, i - backlog));
      if (i + ahead < n) activations = std::max(activations, forwards(i + ahead + 1) - done);
      if (halves) weight_gradients = std::max(weight_gradients, backwards(i + 1) - done);
    }
    h = {.activations = static_cast<int>(activations), .weight_gradients = static_cast<int>(weight_gradients)};
  }
  return held;
}

}  // namespace rw
