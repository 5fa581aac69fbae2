#include "libcore/plan/draw/planned_schedule.h"

#include <fmt/format.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/train/setup.h"

namespace rw {

ScheduleView planned_schedule(const PlanInputs& in, const Prediction& plan) {
  const Layout& l = plan.layout;
  if (plan.timeline.of_stage.empty())
    fail(ErrorKind::usage, "{}: there is no pipeline to draw: expected pp 2 or more, pin it with --pp", l.text());
  ScheduleView view{.shape = l.pipeline(),
                    .timeline = plan.timeline,
                    .times = {},
                    .title = fmt::format("{} on {}: {}, micro-batch {}; memory of a rank {}", in.spec().model,
                                         in.cluster().name, l.text(), l.micro_batch, format_bytes(plan.device_bytes)),
                    .kept = {},
                    .base = {},
                    .in_bytes = true};
  const PlanQuestion question = in.question();
  TrainSpec train;
  train.precision = question.precision;
  const int64_t ranks_per_node = Topology(in.cluster()).ranks_per_node();
  for (int64_t s = 0; s < l.pp; ++s) {
    const RankMemory memory = rank_memory({.model = in.model(),
                                           .layout = l,
                                           .ranks_per_node = ranks_per_node,
                                           .t = precision_type(train),
                                           .backend = *question.backend,
                                           .threads = question.threads},
                                          s);
    const double activations = memory.bytes[static_cast<size_t>(MemoryOwner::activations)];
    view.base.push_back(0);
    view.kept.emplace_back();
    for (int64_t c = 0; c < l.vpp; ++c)
      view.kept.back().push_back(static_cast<double>(l.layers_of(s, c).end - l.layers_of(s, c).begin));
    const double alive = peak_memory(view, static_cast<int>(s));
    for (double& kept : view.kept.back()) kept *= activations / std::max(alive, 1.0);
    view.base.back() = memory.total() - activations;
  }
  return view;
}

}  // namespace rw
