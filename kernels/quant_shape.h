// How many bytes what a quantised product needs takes in device memory: the weights as kernels/cuda/quant_layout.cuh
// lays them out, and the rows of a in the product's workspace.
#pragma once
#include "kernels/ops.h"
#include "libcore/base/check.h"

namespace rw {

constexpr int64_t kQuantStep = 64, kMostBlock = 512;

constexpr int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

struct QuantShape {
  int64_t n, k;            // as given
  int64_t group, block;    // elements of k
  int64_t padded, blocks;  // k padded; blocks of it
  int64_t row_bytes;       // of a row's weights
  int64_t scales_at, own_at, bytes;
  bool wide;  // int8
};
inline QuantShape quant_shape(QuantBits bits, int64_t group, int64_t n, int64_t k) {
  const bool wide = bits == QuantBits::int8;
  CHECK(group > 0 && (wide ? group % 64 == 0 && group <= 512 : group % 32 == 0 && group <= 128),
        "groups of %lld weights of %s bits; expected a multiple of %s", static_cast<long long>(group), wide ? "8" : "4",
        wide ? "64 up to 512" : "32 up to 128");
  QuantShape q{};
  q.n = n, q.k = k, q.group = group, q.wide = wide;
  q.block = wide ? group : 4 * group;
  q.padded = rounded_up(k, kQuantStep);
  q.blocks = (q.padded + q.block - 1) / q.block;
  q.row_bytes = wide ? q.padded : q.padded / 2;
  q.scales_at = rounded_up(n * q.row_bytes, 64);
  q.own_at = rounded_up(q.scales_at + n * q.blocks * 2, 64);
  q.bytes = wide ? q.own_at : rounded_up(q.own_at + n * q.blocks * 2, 64);
  return q;
}
// Of m rows of a.
inline int64_t quant_rows_bytes(int64_t m, const QuantShape& q) { return m * (2 * q.padded + 4 * q.blocks); }

}  // namespace rw
