// Why the layouts beside the best were not taken, and what decided.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/search/search.h"

namespace rw {

PredictQuery predict_query(const PlanQuestion& question);
// Simulated, unless the schedule is too long to be worth it.
Effort effort_for(const Layout& layout);
// Bytes of a rank that a plan may take.
double memory_limit(const PlanQuestion& question, const Predictor& predictor);
// Sets the least recomputation with which a layout fits; false: none does, and the layout has the most.
bool takes_least_recompute(const PlanQuestion& question, const Predictor& predictor, Layout& layout, WorstStage& worst);

// One change each from the best: another tp, pp, vpp, micro-batch, zero, recomputation.
std::vector<Rejected> why_not(const PlanQuestion& question, Predictor& predictor, const Prediction& best);

// The layout that lacks least memory.
class NearMiss {
 public:
  void consider(const Layout& layout, const WorstStage& worst, double limit);
  std::string text() const;  // "the nearest, tp 8 x ..., lacks 3.1 GiB on stage 0 (activations 40 GiB, ...)"

 private:
  bool any_ = false;
  Layout layout_;
  WorstStage worst_;
  double missing_ = 0;
};

}  // namespace rw
