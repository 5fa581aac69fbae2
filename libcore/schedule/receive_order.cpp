#include "libcore/schedule/receive_order.h"

#include "libcore/base/check.h"

namespace rw {
namespace {

bool frees_slot(const Action& a) { return a.kind == ActionKind::backward || a.kind == ActionKind::backward_weight; }

}  // namespace

bool receives(const PipelineShape& shape, int stage, const Action& action) {
  if (action.kind == ActionKind::backward_weight) return false;
  if (action.kind == ActionKind::forward) return stage > 0 || action.chunk > 0;
  return stage + 1 < shape.stages || action.chunk + 1 < shape.chunks;
}

std::vector<std::vector<Action>> receives_before(const PipelineShape& shape, int stage,
                                                 std::span<const int64_t> slots) {
  const std::vector<Action> actions = pipeline_actions(shape, stage);
  std::vector<std::vector<Action>> posted(actions.size());
  // By chunk and slot: the micro-batch in it, and whether its forward is behind.
  struct Slot {
    int64_t holds = -1;
    bool is_forward_done = false;
  };
  std::vector<std::vector<Slot>> held;
  for (const int64_t n : slots) held.emplace_back(static_cast<size_t>(n));
  const auto slot = [&](const Action& a) -> Slot& {
    std::vector<Slot>& of_chunk = held[static_cast<size_t>(a.chunk)];
    return of_chunk[static_cast<size_t>(a.micro_batch) % of_chunk.size()];
  };
  size_t n_posted = 0;  // actions whose receive, if any, was posted
  for (size_t i = 0; i < actions.size(); ++i) {
    while (n_posted <= i + 1 && n_posted < actions.size()) {
      const Action& a = actions[n_posted];
      if (receives(shape, stage, a)) {
        Slot& s = slot(a);
        const bool is_free = a.kind == ActionKind::forward ? s.holds < 0 : s.is_forward_done;
        if (!is_free && n_posted > i) break;
        CHECK(is_free, "the slot of chunk %d has no room for micro-batch %d", a.chunk, a.micro_batch);
        if (a.kind == ActionKind::forward) s.holds = a.micro_batch;
        posted[i].push_back(a);
      }
      ++n_posted;
    }
    Slot& s = slot(actions[i]);
    if (actions[i].kind == ActionKind::forward) s = {.holds = actions[i].micro_batch, .is_forward_done = true};
    if (frees_slot(actions[i])) s = {};
  }
  return posted;
}

}  // namespace rw
