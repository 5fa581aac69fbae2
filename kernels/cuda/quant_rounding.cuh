// From numbers to scaled whole numbers.
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace rw::cuda {

// Of n elements, in all lanes: the largest magnitude, NaN when one is not finite; 0 below 2^-100, of which a reciprocal
// may overflow.
template <class T>
__device__ __forceinline__ float warp_largest(const T* x, int64_t n, int lane) {
  float max = 0, bad = 0;
  for (int64_t i = lane; i < n; i += kWarp) {
    const float v = to_float(x[i]);
    max = fmaxf(fabsf(v), max);
    bad += v * 0.F;
  }
  max = warp_reduce(max, Max{});
  return (max < 0x1p-100F ? 0.F : max) + warp_reduce(bad, Sum{});
}

// The nearest whole number, halves to even, of |x| < 2^22; any for others. 1.5 * 2^23 puts it in the low bits.
__device__ __forceinline__ int round_to_int(float x) { return __float_as_int(x + 12582912.F) - 0x4b400000; }

}  // namespace rw::cuda
