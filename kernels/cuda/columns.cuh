// Sums over the rows of a matrix, column by column, in a fixed order: a block has 32 columns and adds every 32nd row in
// each of its 32 warps, then the warps' sums: a narrow matrix has few blocks, which must have many loads on their way.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/ops.h"

namespace rw::cuda {

template <class T>
struct MatrixColumn {
  const T* x;
  int64_t ld;
  __device__ float operator()(int64_t r, int64_t i) const { return to_float(x[r * ld + i]); }
};

struct ColumnSums {
  float* sum;  // (n)
  int64_t rows, n;
  Write write;
};

constexpr int kColumns = 32, kRowGroups = 32;

template <class F>
__global__ void __launch_bounds__(kColumns* kRowGroups)
    column_sums_kernel(F value, float* sum, int64_t rows, int64_t n, bool accumulate) {
  SHARED(float, part, kColumns* kRowGroups);
  const int lane = static_cast<int>(threadIdx.x), group = static_cast<int>(threadIdx.y);
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kColumns + lane;
  float v = 0;
  if (i < n)
    for (int64_t r = group; r < rows; r += kRowGroups) v += value(r, i);
  part[group * kColumns + lane] = v;
  __syncthreads();
  if (group == 0 && i < n) {
    for (int g = 1; g < kRowGroups; ++g) v += part[g * kColumns + lane];
    sum[i] = accumulate ? sum[i] + v : v;
  }
}

// value(row, column) is what is added; without rows the sums are zeros.
template <class F>
void column_sums(const F& value, const ColumnSums& a, Stream s) {
  if (a.n == 0) return;
  LAUNCH(column_sums_kernel<F>, blocks_for(a.n, kColumns), dim3(kColumns, kRowGroups), 0, native(s), value, a.sum,
         a.rows, a.n, a.write == Write::accumulate);
}

}  // namespace rw::cuda
