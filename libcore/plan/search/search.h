// The search over layouts: every split of the ranks that the model and the batch allow, memory first, time for what
// fits, then the schedule simulated and the memory dry-run for the best.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "libcore/plan/price/predict.h"

namespace rw {

// What is asked for and what is pinned; empty or 0: searched.
struct PlanWishes {
  int64_t global_batch = 0, seq_len = 0;
  std::string precision = "bf16";
  int64_t tp = 0, pp = 0, vpp = 0, dp = 0, micro_batch = 0;
  std::optional<bool> sp = {};
  std::optional<int64_t> zero = {};
  std::optional<ZeroGroup> zero_group = {};
  std::optional<Recompute> recompute = {};
  int64_t recompute_layers = 0;  // with recompute: pinned when above 0
  std::optional<ScheduleKind> schedule = {};
  int64_t max_memory = 0;  // bytes of a rank; 0: the device's
  int64_t ranks = 0;       // 0: all of the cluster's devices
  const Ops* backend = nullptr;
  int threads = 1;
  TrainerTraits trainer = {};
};
struct PlanQuestion : PlanWishes {
  const ModelSpec& model;
  const ClusterSpec& cluster;
};

// A layout beside the best that was not taken.
struct Rejected {
  Layout layout;
  std::string change;  // "tp 16 instead of 8"
  std::string reason;  // "does not fit by 3.1 GiB on stage 0", "+41 % step: tensor-parallel groups would cross nodes"
  double step_s = 0;   // 0: not timed
};

struct PlanAnswer {
  std::vector<Prediction> plans;  // best first; empty: nothing fits
  std::vector<Rejected> rejected;
  int64_t layouts = 0, fitting = 0;  // looked at
  // With no plan: the layout that comes nearest, how much it lacks, and the smallest change that would make one fit.
  std::string nothing_fits, remedy;
};

// At most `top` plans. Error{usage} when pins contradict each other, the model or the ranks: which pair.
PlanAnswer search_plans(const PlanQuestion& question, int64_t top);

// Which limit decided: the first lines of --explain.
std::vector<std::string> explain(const PlanQuestion& question, const PlanAnswer& answer);

}  // namespace rw
