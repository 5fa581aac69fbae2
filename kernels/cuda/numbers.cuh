// Element types in kernels: memory holds T, arithmetic is float.
#pragma once
#include <type_traits>

#include "kernels/cuda/device.cuh"

namespace rw::cuda {

using bf16 = __nv_bfloat16;
using f16 = __half;

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(bf16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(f16 x) { return __half2float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ bf16 from_float<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
// Beyond f16's largest number: infinite, as IEEE 754 rounds.
template <>
__device__ __forceinline__ f16 from_float<f16>(float x) {
  return __float2half_rn(x);
}

// A power of two that probabilities carry in the type T, and its logarithm: f16 has few numbers below 2^-14, and
// probabilities are at most 1.
template <class T>
constexpr float kRaise = std::is_same_v<T, f16> ? 14.F : 0.F;
template <class T>
constexpr float kLower = std::is_same_v<T, f16> ? 0x1p-14F : 1.F;

}  // namespace rw::cuda
