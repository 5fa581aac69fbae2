#include "libcore/plan/search/search.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "libcore/plan/search/layout_space.h"
#include "libcore/plan/search/remedy.h"
#include "libcore/plan/search/why_not.h"

namespace rw {
namespace {

constexpr size_t kSimulated = 48;          // of the best by formula, whose schedules are run
constexpr int64_t kMostActions = 1 << 19;  // of a schedule worth running: beyond it the bubble is a formula

struct Candidate {
  Layout layout;
  double step_s = 0;
};

bool simpler(const Layout& a, const Layout& b) {
  return std::tuple(a.tp * a.pp, a.vpp, a.zero, a.zero_group, a.schedule, -a.micro_batch) <
         std::tuple(b.tp * b.pp, b.vpp, b.zero, b.zero_group, b.schedule, -b.micro_batch);
}
bool faster(double a_s, const Layout& a, double b_s, const Layout& b) {
  constexpr double kSame = 1e-9;  // relative: what only differs in rounding is the same
  if (std::abs(a_s - b_s) > kSame * b_s) return a_s < b_s;
  return simpler(a, b);
}

// Of plans that differ in nothing but how finely stages are cut, as fast as each other, the first says it all.
void drop_near_twins(std::vector<Prediction>& plans) {
  constexpr double kAsFast = 0.005;
  const auto twins = [](const Prediction& a, const Prediction& b) {
    const Layout &x = a.layout, &y = b.layout;
    return std::tuple(x.tp, x.pp, x.dp, x.sp, x.zero, x.zero_group, x.micro_batch, x.recompute) ==
               std::tuple(y.tp, y.pp, y.dp, y.sp, y.zero, y.zero_group, y.micro_batch, y.recompute) &&
           x.vpp > 1 && y.vpp > 1 && std::abs(a.step_s - b.step_s) <= kAsFast * a.step_s;
  };
  std::vector<Prediction> kept;
  for (Prediction& p : plans)
    if (std::none_of(kept.begin(), kept.end(), [&](const Prediction& k) { return twins(k, p); }))
      kept.push_back(std::move(p));
  plans = std::move(kept);
}

}  // namespace

PredictQuery predict_query(const PlanQuestion& q) {
  return {.model = q.model,
          .cluster = q.cluster,
          .precision = q.precision,
          .trainer = q.trainer,
          .backend = q.backend,
          .threads = q.threads};
}

double memory_limit(const PlanQuestion& q, const Predictor& predictor) {
  return q.max_memory > 0 ? std::min(static_cast<double>(q.max_memory), predictor.device_bytes())
                          : predictor.device_bytes();
}

bool takes_least_recompute(const PlanQuestion& q, const Predictor& predictor, Layout& layout, WorstStage& worst) {
  const double limit = memory_limit(q, predictor);
  const int64_t stage_layers = largest_stage(layout);
  for (const RecomputeChoice& choice : recompute_choices(q, stage_layers)) {
    layout.recompute = choice.kind;
    layout.recompute_layers = choice.layers;
    worst = predictor.memory(layout);
    if (worst.memory.total() <= limit) return true;
  }
  return false;
}

Effort effort_for(const Layout& l) {
  return 3 * l.micro_batches() * l.vpp * l.pp > kMostActions ? Effort::closed_form : Effort::simulated;
}

PlanAnswer search_plans(const PlanQuestion& q, int64_t top) {
  Predictor predictor(predict_query(q));
  const int64_t ranks = q.ranks > 0 ? q.ranks : q.cluster.device_count();
  const int64_t per_node = std::min(ranks, predictor.topology().ranks_per_node());
  Dealer dealer(q.model, q.seq_len);
  PlanAnswer answer;
  std::vector<Candidate> fitting;
  NearMiss near;
  for_each_layout(q, ranks, per_node, dealer, [&](const Layout& asked) {
    ++answer.layouts;
    Layout layout = asked;
    WorstStage worst;
    if (takes_least_recompute(q, predictor, layout, worst)) {
      const double s = predictor.predict(layout, Effort::closed_form).step_s;
      fitting.push_back({std::move(layout), s});
    } else {
      near.consider(layout, worst, memory_limit(q, predictor));
    }
  });
  answer.fitting = static_cast<int64_t>(fitting.size());
  if (fitting.empty()) {
    answer.nothing_fits = near.text();
    answer.remedy = find_remedy(q);
    return answer;
  }
  const auto by_time = [](const Candidate& a, const Candidate& b) {
    return faster(a.step_s, a.layout, b.step_s, b.layout);
  };
  const size_t kept = std::min(fitting.size(), std::max(kSimulated, static_cast<size_t>(top)));
  std::partial_sort(fitting.begin(), fitting.begin() + static_cast<int64_t>(kept), fitting.end(), by_time);
  fitting.resize(kept);
  for (const Candidate& c : fitting) answer.plans.push_back(predictor.predict(c.layout, effort_for(c.layout)));
  std::stable_sort(answer.plans.begin(), answer.plans.end(), [](const Prediction& a, const Prediction& b) {
    return faster(a.step_s, a.layout, b.step_s, b.layout);
  });
  drop_near_twins(answer.plans);
  if (static_cast<int64_t>(answer.plans.size()) > top) answer.plans.resize(static_cast<size_t>(top));
  answer.rejected = why_not(q, predictor, answer.plans.front());
  return answer;
}

}  // namespace rw
