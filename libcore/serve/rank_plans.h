// Tensor-parallel serving: the first rank decides and sends its plans, the others carry them out.
#pragma once
#include <memory>

#include "libcore/comm/comm.h"
#include "libcore/serve/model_runner.h"

namespace rw {

// The first rank's runner: sends each plan to the others, then does its own part. With one rank it is the runner
// itself. Error{runtime} names the rank that is gone or late.
std::unique_ptr<StepRunner> make_lead_runner(std::unique_ptr<ModelRunner> runner, Comm& tp);

// Another rank's life: carries out plans until one says stop. The first rank sends something at least every second or
// so; after the communicator's timeout without it: Error{runtime}.
void follow_plans(ModelRunner& runner, Comm& tp);

}  // namespace rw
