#include "libcore/plan/price/work_cache.h"

namespace rw {

const StepWork& WorkCache::of(const Layout& l, Recompute recompute) {
  // Of most micro-batches: gradients are added up, but those of ZeRO 2 and 3, and of a step's only one.
  const Write gradients = l.zero >= 2 || l.micro_batches() == 1 ? Write::overwrite : Write::accumulate;
  const bool split = l.schedule == ScheduleKind::zb_h1, one_stage = l.pp == 1;
  const Key key{l.tp, l.sp, l.micro_batch, l.seq_len, recompute, split, one_stage, gradients};
  if (const auto at = known_.find(key); at != known_.end()) return at->second;
  return known_
      .emplace(key, step_work({.model = model_,
                               .tp = l.tp,
                               .sp = l.sp,
                               .recompute = recompute,
                               .micro_batch = l.micro_batch,
                               .seq_len = l.seq_len,
                               .t = t_,
                               .backend = backend_,
                               .threads = threads_,
                               .split_backward = split,
                               .gradients = gradients,
                               .one_stage = one_stage}))
      .first->second;
}

}  // namespace rw
