// Sizes of the cuda table (device_sizes.h): a table that computes nothing and knows only how much memory products and
// attention need beside their operands. For dry runs of ranks on such devices (OpLog::backend); everything but the size
// functions is null.
#pragma once
#include "kernels/ops.h"

namespace rw {

const Ops& plain_sizes();

}  // namespace rw
