// dtrain --layout auto: the planner lays the model over the ranks there are.
#pragma once
#include "libcore/comm/comm.h"
#include "libcore/spec/train_spec.h"

namespace rw {

// Sets the spec's layout, micro-batch and tables on all ranks alike. Collective. Error{usage}: what a plan needs and is
// not given, or is given beside it; Error{verdict}: nothing fits.
void take_planned_layout(TrainSpec& spec, Comm& world);

}  // namespace rw
