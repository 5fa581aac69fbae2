// What of data parallelism's traffic no compute hides, in a step.
#pragma once
#include "libcore/plan/price/step_time.h"
#include "libcore/plan/price/topology.h"
#include "libcore/plan/price/trainer_traits.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct DpExposure {
  const ModelSpec& model;
  const Layout& layout;
  const Topology& topology;
  const TrainerTraits& trainer;
  double overlap = 0;  // of communication beside compute, what is hidden (DeviceType)
  const PipelineSeconds& pipe;
  double rank_params = 0;  // of a rank of the slowest stage
};
// Seconds of a step, on the slowest stage. dtrain's traffic is counted as its code sends it (dp_traffic); that of other
// trainers in closed form by their traits.
double exposed_dp_seconds(const DpExposure& q);

}  // namespace rw
