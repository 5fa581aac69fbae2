#include "libcore/plan/search/exact.h"

#include "libcore/spec/train_spec.h"
#include "libcore/train/dry_run.h"
#include "libcore/train/setup.h"

namespace rw {

void take_exact_memory(const PlanQuestion& q, Prediction& plan) {
  const Layout& l = plan.layout;
  const DType t = precision_type(q.precision);
  const int64_t ranks_per_node = Topology(q.cluster).ranks_per_node();
  const DryRunSettings settings{.step = step_settings(TrainSpec{}, q.model, l),
                                .backend = {.ops = *q.backend, .stream = {.threads = q.threads}, .t = t},
                                .ranks_per_node = ranks_per_node};
  MemoryModel formula(
      {.model = q.model, .ranks_per_node = ranks_per_node, .t = t, .backend = *q.backend, .threads = q.threads});
  // The formula is right within a hundredth: stages further below its worst cannot be the worst.
  constexpr double kNear = 0.98;
  const double near_worst = kNear * formula.worst_stage(l).memory.total();
  double most = -1;
  for (int64_t stage = 0; stage < l.pp; ++stage) {
    if (formula.of(l, stage).total() < near_worst) continue;
    const DryRun run = dry_run(settings, stage * l.tp * l.dp);
    if (static_cast<double>(run.total_bytes) <= most) continue;
    most = static_cast<double>(run.total_bytes);
    plan.worst_stage = stage;
    for (size_t o = 0; o < run.bytes.size(); ++o) plan.memory.bytes[o] = static_cast<double>(run.bytes[o]);
  }
}

}  // namespace rw
