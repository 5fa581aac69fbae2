// From seconds of a layer and of messages to seconds of a step: the schedule over all stages, what communication
// compute hides, the optimizer. Pure arithmetic on a layout.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/schedule/pipeline.h"
#include "libcore/spec/layout.h"

namespace rw {

// Where a step's seconds go on the slowest stage; their sum is the step.
struct StepSeconds {
  double compute = 0;                                     // ops of the micro-batches, recomputation included
  double exposed_tp = 0, exposed_pp = 0, exposed_dp = 0;  // communication that no compute hides
  double bubble = 0;
  double optimizer = 0;
  double total() const { return compute + exposed_tp + exposed_pp + exposed_dp + bubble + optimizer; }
};

// One micro-batch through a layer or an end of the model: seconds of ops and, beside them, of tensor-parallel
// collectives.
struct PassSeconds {
  double forward = 0, backward_input = 0, backward_weight = 0;
  double tp_forward = 0, tp_backward = 0;
  double compute() const { return forward + backward_input + backward_weight; }
  double tp() const { return tp_forward + tp_backward; }
  double all() const { return compute() + tp(); }
};
struct PipelineParts {
  PassSeconds layer, recomputed_layer;  // backward_input with what is made again
  PassSeconds embedding, head;          // of the first and last virtual stage
  double message = 0;                   // between neighbours
};

struct PipelineSeconds {
  double span = 0;                                                 // of all micro-batches
  double compute = 0, exposed_tp = 0, exposed_pp = 0, bubble = 0;  // of it, on the slowest stage
  int64_t slowest = 0;
  double last_backward = 0;                  // of the slowest stage: seconds of its last micro-batch's backward
  double all_forward = 0, all_backward = 0;  // of the slowest stage, all micro-batches
};
// One micro-batch through a stage, all its chunks.
PassSeconds stage_pass(const Layout& layout, const PipelineParts& parts, int64_t stage);
// In closed form: m M + (sum of the stages - M) / vpp for a slowest stage of M seconds, plus the messages on the way of
// the first and last micro-batch (Narayanan et al. 2021, section 2; gpipe and 1f1b alike). zb-h1: the bubble holds the
// weight halves (Qi et al. 2023).
PipelineSeconds pipeline_closed_form(const Layout& layout, const PipelineParts& parts);
// By running the schedule's actions as an event simulation; work grows with stages x chunks x micro-batches.
PipelineSeconds pipeline_simulated(const Layout& layout, const PipelineParts& parts, Timeline* keep = nullptr);

}  // namespace rw
