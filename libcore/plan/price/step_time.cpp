#include "libcore/plan/price/step_time.h"

#include <algorithm>

namespace rw {
namespace {

PassSeconds& add(PassSeconds& to, const PassSeconds& p, double times) {
  to.forward += times * p.forward;
  to.backward_input += times * p.backward_input;
  to.backward_weight += times * p.backward_weight;
  to.tp_forward += times * p.tp_forward;
  to.tp_backward += times * p.tp_backward;
  return to;
}

// Of a stage's chunk; `done` layers of the stage come before it, which decides what is recomputed.
PassSeconds chunk_pass(const Layout& layout, const PipelineParts& parts, int64_t stage, int64_t chunk, int64_t done) {
  const Layout::Layers l = layout.layers_of(stage, chunk);
  const int64_t n = l.end - l.begin;
  const int64_t again =
      layout.recompute == Recompute::none ? 0 : std::clamp<int64_t>(layout.recompute_layers - done, 0, n);
  PassSeconds pass;
  add(pass, parts.recomputed_layer, static_cast<double>(again));
  add(pass, parts.layer, static_cast<double>(n - again));
  if (stage == 0 && chunk == 0) add(pass, parts.embedding, 1);
  if (stage + 1 == layout.pp && chunk + 1 == layout.vpp) add(pass, parts.head, 1);
  return pass;
}

std::vector<PassSeconds> chunk_passes(const Layout& layout, const PipelineParts& parts, int64_t stage) {
  std::vector<PassSeconds> passes;
  int64_t done = 0;
  for (int64_t c = 0; c < layout.vpp; ++c) {
    passes.push_back(chunk_pass(layout, parts, stage, c, done));
    const Layout::Layers l = layout.layers_of(stage, c);
    done += l.end - l.begin;
  }
  return passes;
}

// What the slowest stage's share of a step is made of.
void fill_shares(PipelineSeconds& p, const Layout& layout, const std::vector<PassSeconds>& stages) {
  const PassSeconds& slowest = stages[static_cast<size_t>(p.slowest)];
  const double m = static_cast<double>(layout.micro_batches());
  p.compute = m * slowest.compute();
  p.exposed_tp = m * slowest.tp();
  p.all_forward = m * (slowest.forward + slowest.tp_forward);
  p.all_backward = m * slowest.all() - p.all_forward;
  p.last_backward = p.all_backward / m;
}

std::vector<PassSeconds> all_stages(const Layout& layout, const PipelineParts& parts) {
  std::vector<PassSeconds> stages;
  for (int64_t s = 0; s < layout.pp; ++s) stages.push_back(stage_pass(layout, parts, s));
  return stages;
}

int64_t slowest_of(const std::vector<PassSeconds>& stages) {
  return std::max_element(stages.begin(), stages.end(),
                          [](const PassSeconds& a, const PassSeconds& b) { return a.all() < b.all(); }) -
         stages.begin();
}

}  // namespace

PassSeconds stage_pass(const Layout& layout, const PipelineParts& parts, int64_t stage) {
  PassSeconds sum;
  for (const PassSeconds& p : chunk_passes(layout, parts, stage)) add(sum, p, 1);
  return sum;
}

PipelineSeconds pipeline_closed_form(const Layout& layout, const PipelineParts& parts) {
  const std::vector<PassSeconds> stages = all_stages(layout, parts);
  PipelineSeconds p;
  p.slowest = slowest_of(stages);
  fill_shares(p, layout, stages);
  const PassSeconds& slowest = stages[static_cast<size_t>(p.slowest)];
  double others = 0;
  for (const PassSeconds& s : stages)
    others += s.all() - (layout.schedule == ScheduleKind::zb_h1 ? s.backward_weight : 0);
  others -= slowest.all() - (layout.schedule == ScheduleKind::zb_h1 ? slowest.backward_weight : 0);
  p.bubble = others / static_cast<double>(layout.vpp);
  p.exposed_pp = 2 * static_cast<double>(layout.pp - 1) * parts.message;
  p.span = p.compute + p.exposed_tp + p.bubble + p.exposed_pp;
  return p;
}

PipelineSeconds pipeline_simulated(const Layout& layout, const PipelineParts& parts, Timeline* keep) {
  const std::vector<PassSeconds> stages = all_stages(layout, parts);
  PipelineSeconds p;
  p.slowest = slowest_of(stages);
  fill_shares(p, layout, stages);
  StageTimes times;
  for (int64_t s = 0; s < layout.pp; ++s) {
    for (auto* of : {&times.forward, &times.backward_input, &times.backward_weight}) of->emplace_back();
    for (const PassSeconds& c : chunk_passes(layout, parts, s)) {
      times.forward.back().push_back(c.forward + c.tp_forward);
      times.backward_input.back().push_back(c.backward_input + c.tp_backward);
      times.backward_weight.back().push_back(c.backward_weight);
    }
  }
  const PipelineShape shape = layout.pipeline();
  Timeline without = time_schedule(shape, times);
  times.message = parts.message;
  Timeline with = parts.message > 0 && layout.pp > 1 ? time_schedule(shape, times) : without;
  p.span = with.seconds;
  p.exposed_pp = std::max(0.0, with.seconds - without.seconds);
  p.bubble = std::max(0.0, with.seconds - p.exposed_pp - p.compute - p.exposed_tp);
  if (keep != nullptr) *keep = std::move(with);
  return p;
}

}  // namespace rw
