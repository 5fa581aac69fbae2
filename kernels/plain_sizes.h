// Sizes of the cuda table (device_sizes.h): a table that computes nothing and knows only how much memory products and
// attention need beside their operands. For dry runs of ranks on such devices (OpLog::backend); everything but the size
// functions is null.
#pragma once
#include "kernels/ops.h"

namespace rw {

// quant_gemm_workspace, paged_attention_workspace: 0, though serving on a GPU takes some. quant_packed_bytes: the
// numbers and their scales as QuantPack says, without padding.
const Ops& plain_sizes();

}  // namespace rw
