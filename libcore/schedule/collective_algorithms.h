// The all-reduce algorithms behind all_reduce_steps, one file each.
#pragma once
#include "libcore/schedule/collective.h"

namespace rw {

StepList tree_steps(const AllReduceShape& shape, int rank);
StepList hierarchical_steps(const AllReduceShape& shape, int rank);
StepList doubling_steps(const AllReduceShape& shape, int rank);

}  // namespace rw
