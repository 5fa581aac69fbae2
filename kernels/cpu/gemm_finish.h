// The end of a tile: bias, what c held, conversion. Compiled once per instruction set (see simd.h).
#pragma once
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {

template <int64_t kCols, class C>
RW_INLINE void finish_rows(const FinishTile& f) {
  C* c = static_cast<C*>(f.c);
  const float* tile = f.tile;
  for (int64_t r = 0; r < f.rows; ++r, c += f.ldc, tile += kCols) {
    for (int64_t j = 0; j < f.cols; j += kW) {
      const int64_t n = f.cols - j;
      vf v = load(tile + j);
      if (n >= kW) {
        if (f.bias) v += load(f.bias + j);
        if (f.write == Write::accumulate) v += load(c + j);
        store(c + j, v);
      } else {
        if (f.bias) v += load_n(f.bias + j, n);
        if (f.write == Write::accumulate) v += load_n(c + j, n);
        store_n(c + j, v, n);
      }
    }
  }
}

// Half: the 16-bit type of the kernel's operands.
template <int64_t kCols, class Half>
RW_INLINE void finish_tile(const FinishTile& f) {
  if (f.ct == DType::f32) finish_rows<kCols, float>(f);
  else finish_rows<kCols, Half>(f);
}

}  // namespace rw::RW_ISA
