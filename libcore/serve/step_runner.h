// Who carries out a step plan.
#pragma once
#include "libcore/serve/step_plan.h"

namespace rw {

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  virtual StepOutput run(const StepPlan& plan) = 0;
  // Called now and then while there is nothing to run: Error{runtime} when a rank is gone.
  virtual void idle() = 0;
};

}  // namespace rw
