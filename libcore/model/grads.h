// Gradients go to a sink: it says where a group's gradients lie and whether to add, and hears when a group is finished.
#pragma once
#include <cstdint>

#include "kernels/ops.h"

namespace rw {

struct GradPlace {
  float* base;  // base + slice offset (ParamLayout) is a parameter's place, for parameters of the opened group
  Write write;  // overwrite: nothing is there yet, the caller writes all of the group (or its share of it) now
};

class GradSink {
 public:
  virtual ~GradSink() = default;
  // group: of the ParamLayout. Whoever opens a group first is told to overwrite, all others to accumulate, until the
  // sink has taken what is there.
  virtual GradPlace open(int64_t group) = 0;
  // Once per micro-batch and group, when this micro-batch's gradients of the group are complete.
  virtual void done(int64_t group) = 0;
};

}  // namespace rw
