// Gradients go to a sink: it says where a group's gradients lie and whether to add, and hears when a group is finished.
#pragma once
#include <cstdint>

#include "kernels/ops.h"

namespace rw {

struct GradPlace {
  float* base;  // of a flat gradient buffer in ParamLayout's order
  Write write;  // overwrite by the first micro-batch of a step, accumulate by the others
};

class GradSink {
 public:
  virtual ~GradSink() = default;
  virtual GradPlace open(int64_t group) = 0;
  // Called once per micro-batch and group, in backward order: head, blocks from last to first, embeddings.
  virtual void done(int64_t group) = 0;
};

}  // namespace rw
