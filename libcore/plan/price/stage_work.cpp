// A rank's whole step, put together from the work of its kinds of layers.
#include <algorithm>

#include "libcore/plan/price/step_work.h"

namespace rw {
namespace {

// How often each part comes in one micro-batch's way through a stage.
struct StageCounts {
  int64_t chunks = 0, layers = 0, recomputed = 0;
  bool embedding = false, head = false;
  int64_t first_micro_batches = 0, later_micro_batches = 0;
};

StageCounts counts_of(const Layout& layout, int64_t stage) {
  StageCounts n{.chunks = layout.vpp, .embedding = stage == 0, .head = stage + 1 == layout.pp};
  for (int64_t c = 0; c < layout.vpp; ++c) {
    const Layout::Layers l = layout.layers_of(stage, c);
    n.layers += l.end - l.begin;
  }
  if (layout.recompute != Recompute::none)
    n.recomputed = layout.recompute_layers == 0 ? n.layers : std::min(layout.recompute_layers, n.layers);
  // Stages 2 and 3 keep no sum of gradients that a later micro-batch could add to.
  n.first_micro_batches = layout.zero >= 2 ? layout.micro_batches() : 1;
  n.later_micro_batches = layout.micro_batches() - n.first_micro_batches;
  return n;
}

// Calls add(work, times) for everything that a micro-batch does.
template <typename Add>
void each_of_micro_batch(const StepWork& plain, const StepWork& recomputed, const StageCounts& n, const Add& add) {
  if (n.embedding) add(plain.embedding_forward, 1), add(plain.embedding_backward, 1);
  add(plain.first_layer_forward, n.chunks);
  add(plain.layer.forward, n.layers - n.chunks);
  add(plain.chunk_output, n.chunks);
  if (n.head) add(plain.head, 1);
  add(recomputed.layer.recompute, n.recomputed);
  add(recomputed.layer.backward, n.recomputed);
  add(plain.layer.backward, n.layers - n.recomputed);
}

template <typename Add>
void each_of_step(const WorkParts& parts, const Layout& layout, int64_t stage, const Add& add) {
  const StageCounts n = counts_of(layout, stage);
  each_of_micro_batch(parts.first, parts.first_recomputed, n,
                      [&](const Work& work, int64_t times) { add(work, times * n.first_micro_batches); });
  each_of_micro_batch(parts.later, parts.later_recomputed, n,
                      [&](const Work& work, int64_t times) { add(work, times * n.later_micro_batches); });
  add(parts.first.per_step, 1);
  add(parts.first.layer_update, n.layers);
  if (n.embedding) add(parts.first.embedding_update, 1);
  if (n.head) add(parts.first.head_update, 1);
}

}  // namespace

WorkParts work_parts(const WorkTerms& terms) {
  const Layout& l = terms.layout;
  const auto of = [&](Recompute recompute, Write gradients) {
    return step_work({.model = terms.model,
                      .tp = l.tp,
                      .sp = l.sp,
                      .recompute = recompute,
                      .micro_batch = l.micro_batch,
                      .seq_len = l.seq_len,
                      .t = terms.t,
                      .backend = terms.backend,
                      .threads = terms.threads,
                      .split_backward = l.schedule == ScheduleKind::zb_h1,
                      .gradients = gradients,
                      .one_stage = l.pp == 1});
  };
  WorkParts parts{.first = of(Recompute::none, Write::overwrite),
                  .later = of(Recompute::none, Write::accumulate),
                  .first_recomputed = {},
                  .later_recomputed = {}};
  if (l.recompute == Recompute::none) return parts;
  parts.first_recomputed = of(l.recompute, Write::overwrite);
  parts.later_recomputed = of(l.recompute, Write::accumulate);
  return parts;
}

Work stage_work(const WorkParts& parts, const Layout& layout, int64_t stage) {
  Work all;
  each_of_step(parts, layout, stage, [&](const Work& work, int64_t times) {
    if (times > 0) all.add(work, times);
  });
  return all;
}

double stage_flops(const WorkParts& parts, const Layout& layout, int64_t stage) {
  double sum = 0;
  each_of_step(parts, layout, stage,
               [&](const Work& work, int64_t times) { sum += static_cast<double>(times) * work.flops(); });
  return sum;
}

}  // namespace rw
