#include "libcore/plan/search/search.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "libcore/plan/search/layout_space.h"
#include "libcore/plan/search/why_not.h"

namespace rw {
namespace {

constexpr size_t kSimulated = 32;          // of the best by formula, whose schedules are run
constexpr int64_t kMostActions = 1 << 19;  // of a schedule worth running: beyond it the bubble is a formula

int64_t largest_stage(const Layout& l) {
  int64_t most = 0;
  for (int64_t s = 0; s < l.pp; ++s) {
    int64_t n = 0;
    for (int64_t c = 0; c < l.vpp; ++c) n += l.layers_of(s, c).end - l.layers_of(s, c).begin;
    most = std::max(most, n);
  }
  return most;
}

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
  for (const Candidate& c : fitting) {
    const int64_t actions = 3 * c.layout.micro_batches() * c.layout.vpp * c.layout.pp;
    answer.plans.push_back(
        predictor.predict(c.layout, actions > kMostActions ? Effort::closed_form : Effort::simulated));
  }
  std::stable_sort(answer.plans.begin(), answer.plans.end(), [](const Prediction& a, const Prediction& b) {
    return faster(a.step_s, a.layout, b.step_s, b.layout);
  });
  if (static_cast<int64_t>(answer.plans.size()) > top) answer.plans.resize(static_cast<size_t>(top));
  answer.rejected = why_not(q, predictor, answer.plans.front());
  return answer;
}

}  // namespace rw
