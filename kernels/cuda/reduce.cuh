// Sums and maxima of a warp and of a block, in a fixed order: the same inputs give the same bits on every launch.
#pragma once
#include "kernels/cuda/device.cuh"

namespace rw::cuda {

constexpr unsigned kFullMask = 0xffffffffU;
constexpr int kWarp = 32;

struct Sum {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ __forceinline__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

// All lanes get the result. By halves (butterfly), so that every lane adds the same pairs.
template <class T, class Op>
__device__ __forceinline__ T warp_reduce(T v, Op op) {
  for (int d = kWarp / 2; d > 0; d /= 2) v = op(v, __shfl_xor_sync(kFullMask, v, d));
  return v;
}

// All threads of a block of whole warps get the result; `none` is what an absent warp brings (0 for sums). Ends with a
// barrier: may be called again at once.
template <class T, class Op>
__device__ __forceinline__ T block_reduce(T v, T none, Op op) {
  SHARED(T, part, 32);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  v = warp_reduce(v, op);
  if (lane == 0) part[warp] = v;
  __syncthreads();
  v = warp_reduce(lane < warps ? part[lane] : none, op);
  __syncthreads();
  return v;
}
template <class T>
__device__ __forceinline__ T block_sum(T v) {
  return block_reduce(v, T{0}, Sum{});
}

}  // namespace rw::cuda
