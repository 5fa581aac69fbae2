// What CUDA C++ adds to the language inside kernels, under a host compiler: indices, barriers, warp operations, atomics
// and intrinsics. Included by kernels/cuda/device.cuh as the last of its headers: threadIdx and friends are macros
// here.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/simt/block.cuh"
#include "kernels/simt/runtime.cuh"

#define threadIdx (::rw::simt::here().thread)
#define blockIdx (::rw::simt::here().block)
#define blockDim (::rw::simt::here().block_dim)
#define gridDim (::rw::simt::here().grid_dim)

inline void __syncthreads() { rw::simt::sync_threads(); }
inline int __syncthreads_or(int predicate) { return rw::simt::sync_threads_or(predicate); }
inline void __threadfence() {}
inline void __threadfence_block() {}

namespace rw::simt {

template <class T>
struct ShuffleLane {
  T value, got;
  unsigned from;  // lane
};
// A lane that names one outside the mask gets poison: on a GPU its value is undefined.
template <class T>
T shuffle(const char* op, uint32_t mask, T value, unsigned from) {
  ShuffleLane<T> mine{value, value, from % kWarpSize};
  meet_in_warp(op, mask, &mine, [](void* const* brought) {
    for (unsigned i = 0; i < kWarpSize; ++i) {
      if (brought[i] == nullptr) continue;
      auto* lane = static_cast<ShuffleLane<T>*>(brought[i]);
      if (const auto* source = static_cast<const ShuffleLane<T>*>(brought[lane->from]); source != nullptr)
        lane->got = source->value;
      else std::memset(static_cast<void*>(&lane->got), 0xFF, sizeof(T));
    }
  });
  return mine.got;
}

struct VoteLane {
  bool predicate;
  uint32_t votes;
};
inline uint32_t ballot(const char* op, uint32_t mask, bool predicate) {
  VoteLane mine{predicate, 0};
  meet_in_warp(op, mask, &mine, [](void* const* brought) {
    uint32_t votes = 0;
    for (unsigned i = 0; i < kWarpSize; ++i)
      if (brought[i] != nullptr && static_cast<VoteLane*>(brought[i])->predicate) votes |= 1U << i;
    for (unsigned i = 0; i < kWarpSize; ++i)
      if (brought[i] != nullptr) static_cast<VoteLane*>(brought[i])->votes = votes;
  });
  return mine.votes;
}

}  // namespace rw::simt

inline void __syncwarp(unsigned mask = 0xffffffffU) { rw::simt::meet_in_warp("__syncwarp", mask, nullptr, nullptr); }
template <class T>
T __shfl_sync(unsigned mask, T value, int from) {
  return rw::simt::shuffle("__shfl_sync", mask, value, static_cast<unsigned>(from));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int with) {
  return rw::simt::shuffle("__shfl_xor_sync", mask, value, rw::simt::lane() ^ static_cast<unsigned>(with));
}
// Beyond the ends a lane keeps its own value.
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by) {
  const unsigned me = rw::simt::lane();
  return rw::simt::shuffle("__shfl_down_sync", mask, value, me + by < rw::simt::kWarpSize ? me + by : me);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by) {
  const unsigned me = rw::simt::lane();
  return rw::simt::shuffle("__shfl_up_sync", mask, value, me >= by ? me - by : me);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return rw::simt::ballot("__ballot_sync", mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return rw::simt::ballot("__any_sync", mask, predicate != 0) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return rw::simt::ballot("__all_sync", mask, predicate != 0) == mask ? 1 : 0;
}

// Fibers of one host thread: nothing comes between a read and its write.
template <class T>
T atomicAdd(T* at, T value) {
  const T before = *at;
  *at = before + value;
  return before;
}
template <class T>
T atomicMax(T* at, T value) {
  const T before = *at;
  *at = std::max(before, value);
  return before;
}
template <class T>
T atomicMin(T* at, T value) {
  const T before = *at;
  *at = std::min(before, value);
  return before;
}
template <class T>
T atomicExch(T* at, T value) {
  return std::exchange(*at, value);
}

template <class T>
T __ldg(const T* at) {
  return *at;
}
inline float rsqrtf(float x) { return 1.0F / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1.0F / x; }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __float_as_int(float x) {
  int bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __int_as_float(int bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline unsigned __float_as_uint(float x) { return static_cast<unsigned>(__float_as_int(x)); }
inline float __uint_as_float(unsigned bits) { return __int_as_float(static_cast<int>(bits)); }
inline int __dp4a(int a, int b, int c) {
  int8_t x[4], y[4];
  std::memcpy(x, &a, 4);
  std::memcpy(y, &b, 4);
  for (int i = 0; i < 4; ++i) c += x[i] * y[i];
  return c;
}
