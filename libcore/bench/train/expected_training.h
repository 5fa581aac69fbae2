// What a measured training is held against: the planner's prediction, the roofline of its own ops, and its exact
// counts by dry run.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "libcore/bench/train/measure_training.h"
#include "libcore/plan/price/predict.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// The kernels of one step on rank 0, by a dry run of the trainer's own code.
struct StepKernels {
  std::map<std::string, int64_t> calls;  // by op
  int64_t all_calls = 0;
  double flops = 0, bytes = 0;
  // The least seconds that the measured peak and, where it is known, the memory's bandwidth allow (Williams, Waterman &
  // Patterson 2009), op by op.
  double roofline_s = 0;
  double flops_s = 0;  // of it, what the peak alone asks: caches do not make that shorter
};
struct TrainExpectation {
  StepKernels kernels;
  std::optional<Prediction> prediction;
  std::string cluster;    // that the prediction is for
  bool was_quiet = true;  // false: the cluster is this host, measured while others were on it
  std::string note;       // why there is none
};
// `cluster` null: no prediction. `bytes_per_s` of a rank's memory, 0: unknown.
TrainExpectation expected_training(const TrainSeries& series, const ClusterSpec* cluster, double bytes_per_s);

}  // namespace rw
