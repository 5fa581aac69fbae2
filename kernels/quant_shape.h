// How many bytes what a quantised product needs takes in device memory: the weights as kernels/cuda/quant_layout.cuh
// lays them out, and the rows of a in the product's workspace.
#pragma once
#include "kernels/ops.h"

namespace rw {

constexpr int64_t kQuantStep = 64, kMostBlock = 512;

struct QuantShape {
  int64_t n, k;            // as given
  int64_t group, block;    // elements of k
  int64_t padded, blocks;  // k padded; blocks of it
  int64_t row_bytes;       // of a row's weights
  int64_t scales_at, own_at, bytes;
  bool wide;  // int8
};
// CheckFailed for groups that quant_pack does not take.
QuantShape quant_shape(QuantBits bits, int64_t group, int64_t n, int64_t k);
// Of m rows of a.
inline int64_t quant_rows_bytes(int64_t m, const QuantShape& q) { return m * (2 * q.padded + 4 * q.blocks); }

}  // namespace rw
