#include "libcore/plan/search/exact.h"

#include <algorithm>

#include "libcore/train/dry_run.h"
#include "libcore/train/setup.h"

namespace rw {

void take_exact_memory(const PlanQuestion& q, Prediction& plan) {
  const Layout& l = plan.layout;
  const DType t = q.precision == "f32" ? DType::f32 : q.precision == "f16" ? DType::f16 : DType::bf16;
  const DryRunSettings settings{.step = {.spec = q.model,
                                         .layout = l,
                                         .adam = {.beta1 = 0.9f, .beta2 = 0.95f, .eps = 1e-8f, .weight_decay = 0.1f},
                                         .clip_norm = 1.0},
                                .backend = {.ops = *q.backend, .stream = {.threads = q.threads}, .t = t},
                                .ranks_per_node = Topology(q.cluster).ranks_per_node()};
  double most = -1;
  const MemoryQuery query{.model = q.model,
                          .layout = l,
                          .ranks_per_node = settings.ranks_per_node,
                          .t = t,
                          .backend = *q.backend,
                          .threads = q.threads};
  // The formula is right within a hundredth: stages further below its worst cannot be the worst.
  constexpr double kNear = 0.98;
  const double near_worst = kNear * worst_stage(query).memory.total();
  for (int64_t stage = 0; stage < l.pp; ++stage) {
    if (rank_memory(query, stage).total() < near_worst) continue;
    const DryRun run = dry_run(settings, stage * l.tp * l.dp);
    if (static_cast<double>(run.total_bytes) <= most) continue;
    most = static_cast<double>(run.total_bytes);
    plan.worst_stage = stage;
    for (size_t o = 0; o < run.bytes.size(); ++o) plan.memory.bytes[o] = static_cast<double>(run.bytes[o]);
  }
}

}  // namespace rw
