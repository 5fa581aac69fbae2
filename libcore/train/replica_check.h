// Ranks that should hold the same bits: data-parallel replicas of the weights, and what tensor-parallel ranks and the
// ends of a pipeline hold in common. Silent differences are faults of hardware or of the code.
#pragma once
#include <string>

#include "libcore/train/step.h"

namespace rw {

// Collective over the step's mesh. Compares digests of every weight that more than one rank holds; "" when all agree,
// otherwise, the same on all ranks, which parameter differs on which ranks from the others (the minority is named).
std::string replica_difference(TrainStep& step);

}  // namespace rw
