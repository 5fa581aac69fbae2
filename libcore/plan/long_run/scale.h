// How a training's speed grows with nodes: the best plan at each size, the law through them, and what bends it.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "libcore/plan/long_run/scaling_fit.h"
#include "libcore/plan/search/plan_spec.h"

namespace rw {

// "1..64" (powers of two times the first, up to the last), "1,2,6", or both: ascending, each once. Error{usage}.
std::vector<int64_t> parse_node_list(const std::string& text);

struct ScaleQuestion {
  PlanSpec spec;  // its nodes are set for each size
  std::vector<int64_t> nodes;
  int64_t batch_per_device = 0;  // weak scaling: samples of a step per device; 0: strong, with spec.global_batch
};

struct ScaleRow {
  int64_t nodes = 0, devices = 0, global_batch = 0;
  std::optional<Prediction> plan;
  std::string nothing;    // why there is none
  double efficiency = 0;  // tokens/s per device against the best row's
};
// What of the speed is lost between the best row and a larger one: device-seconds per token that it takes more, by
// where they go. Shares of all that is lost; negative where a term became smaller.
struct ScaleLoss {
  std::string term;  // "compute", "exposed_tp", "exposed_pp", "exposed_dp", "bubble", "optimizer"
  double share = 0;
};
struct ScaleAnswer {
  std::vector<ScaleRow> rows;
  // The size with the most tokens/s per device. Smaller ones lack memory (they recompute, or split what is better
  // whole), which no law of scaling knows; so the fit and the knees begin here. 0: nothing fits anywhere.
  int64_t best_nodes = 0;
  std::optional<ScalingFit> fit;  // of seconds per token over nodes, from three rows on
  // The first sizes beyond it whose efficiency is below; 0: none.
  int64_t below_80 = 0, below_50 = 0;
  int64_t bends_at = 0;         // where the losses are taken: below_80, else the last row's; 0: nothing is lost
  std::vector<ScaleLoss> loss;  // largest first; empty when nothing is lost
};
// `progress` is called before each size. Error{usage} as the search has it.
ScaleAnswer scale_plans(const ScaleQuestion& question, const std::function<void(int64_t nodes)>& progress);
// Efficiencies, knees and losses of rows that have their plans.
void analyse_scaling(ScaleAnswer& answer);

Json scaling_fit_json(const ScalingFit& fit, double from);
std::string scaling_fit_text(const ScalingFit& fit, double from);
Json scale_json(const ScaleAnswer& answer);
std::string scale_text(const ScaleAnswer& answer);

}  // namespace rw
