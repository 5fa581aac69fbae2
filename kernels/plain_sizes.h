// Sizes of a backend that multiplies matrices as they lie in memory, as libraries for accelerators do: a table that
// computes nothing and knows only how much memory products and attention need beside their operands. For dry runs of
// ranks on such devices (OpLog::backend); everything but the size functions is null.
#pragma once
#include "kernels/ops.h"

namespace rw {

// packed_bytes: a weight has one copy in the type of the activations, which serves the product with it and with its
// transpose: the forward's (b_trans yes) is n * k elements, the backward's none of its own.
// gemm_workspace, quant_gemm_workspace, paged_attention_workspace: 0. A library's own workspace is a fixed part of what
// the device's runtime keeps back.
// attention_workspace: what the backward of blockwise attention keeps in f32 (Dao 2023, algorithm 2): the sum of the
// queries' gradients over blocks of keys, rows padded to blocks of 128 a sequence and heads to 32 columns, and a row
// sum of dO * O for each row and head. quant_packed_bytes: the numbers and their scales as QuantPack says, without
// padding.
const Ops& plain_sizes();

}  // namespace rw
