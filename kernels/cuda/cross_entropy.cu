// A block a row. One pass finds maximum and sum together (online softmax, Milakov & Gimelshein 2018): threads keep
// their own, and are put together in a fixed order.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 8;  // logits of a thread that are on their way together

__device__ __forceinline__ float minus_infinity() { return -INFINITY; }

// Of a share of a row: its maximum and the sum of e^(x - max). Nothing: -infinity and 0.
struct Softmax {
  float max, sum;
};
struct Together {
  __device__ Softmax operator()(Softmax a, Softmax b) const {
    const float max = a.max > b.max ? a.max : b.max;
    if (max == minus_infinity()) return {max, a.sum + b.sum};  // also keeps a NaN's sum
    return {max, a.sum * expf(a.max - max) + b.sum * expf(b.max - max)};
  }
};

// As block_reduce, of two numbers.
__device__ __forceinline__ Softmax warp_together(Softmax v) {
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const Softmax other{__shfl_xor_sync(kFullMask, v.max, d), __shfl_xor_sync(kFullMask, v.sum, d)};
    // The lower lane's share first, in both lanes: the same bits.
    v = (threadIdx.x & static_cast<unsigned>(d)) == 0 ? Together{}(v, other) : Together{}(other, v);
  }
  return v;
}
__device__ __forceinline__ Softmax block_together(Softmax v) {
  SHARED(Softmax, part, 32);
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = static_cast<int>(threadIdx.x) % kWarp;
  v = warp_together(v);
  if (lane == 0) part[warp] = v;
  __syncthreads();
  v = warp_together(lane < static_cast<int>(blockDim.x) / kWarp ? part[lane] : Softmax{minus_infinity(), 0.F});
  __syncthreads();
  return v;
}

// This thread's logits of a row, in registers: every kThreads-th from `first` on, -infinity behind the last.
template <class T>
struct Logits {
  float z[kAtOnce];
  __device__ __forceinline__ Logits(const T* x, int64_t first, int64_t v) {
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kThreads;
      z[j] = i < v ? to_float(x[i]) : minus_infinity();
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    part_kernel(float* part, const T* logits, const int32_t* target, int64_t v, int64_t v_begin, int64_t ld) {
  const int64_t r = blockIdx.x;
  const T* x = logits + r * ld;
  Softmax mine{minus_infinity(), 0.F};
  for (int64_t i = threadIdx.x; i < v; i += kThreads * kAtOnce) {
    const Logits<T> my(x, i, v);
    const float before = mine.max;
#pragma unroll
    for (float z : my.z) mine.max = z > mine.max ? z : mine.max;
    const float base = mine.max == minus_infinity() ? 0.F : mine.max;
    mine.sum *= expf(before - base);
#pragma unroll
    for (float z : my.z) mine.sum += expf(z - base);  // a NaN makes the sum NaN
  }
  const Softmax all = block_together(mine);
  if (threadIdx.x == 0) {
    const int64_t t = static_cast<int64_t>(target[r]) - v_begin;
    part[r * 3] = all.max;
    part[r * 3 + 1] = all.sum;
    part[r * 3 + 2] = t >= 0 && t < v ? to_float(x[t]) : minus_infinity();
  }
}

template <class T>
struct Finish {
  float* loss;
  T* logits;
  const float* parts;
  int64_t n_parts, rows;
  const int32_t* target;
  int64_t v, v_begin, ld;
  float d_scale;
};

template <class T>
__global__ void __launch_bounds__(kThreads) finish_kernel(Finish<T> a) {
  const int64_t r = blockIdx.x, target = a.target[r];
  T* const x = a.logits + r * a.ld;
  if (target < 0) {
    if (threadIdx.x == 0) a.loss[r] = 0;
    if (a.d_scale != 0)
      for (int64_t i = threadIdx.x; i < a.v; i += blockDim.x) x[i] = from_float<T>(0.F);
    return;
  }
  Softmax all{a.parts[r * 3], 0.F};
  float hit = a.parts[r * 3 + 2];
  for (int64_t p = 1; p < a.n_parts; ++p) {
    const float* part = a.parts + (p * a.rows + r) * 3;
    all.max = part[0] > all.max ? part[0] : all.max;
    hit = part[2] > hit ? part[2] : hit;
  }
  for (int64_t p = 0; p < a.n_parts; ++p) {
    const float* part = a.parts + (p * a.rows + r) * 3;
    all.sum += part[0] == all.max ? part[1] : part[1] * expf(part[0] - all.max);
  }
  if (threadIdx.x == 0)
    a.loss[r] = static_cast<float>(log(static_cast<double>(all.sum)) +
                                   (static_cast<double>(all.max) - static_cast<double>(hit)));
  if (a.d_scale == 0) return;
  const float scale = a.d_scale / all.sum;
  const int64_t at = target - a.v_begin;
  for (int64_t i = threadIdx.x; i < a.v; i += kThreads * kAtOnce) {
    const Logits<T> my(x, i, a.v);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t column = i + j * kThreads;
      if (column < a.v && column != at) x[column] = from_float<T>(expf(my.z[j] - all.max) * scale);
    }
  }
  if (at < 0 || at >= a.v || at % kThreads != threadIdx.x) return;  // this thread's column alone
  // In double: near a probability of 1 the float quotient would leave only its rounding error.
  const double p = exp(static_cast<double>(hit) - static_cast<double>(all.max)) / static_cast<double>(all.sum);
  x[at] = from_float<T>(static_cast<float>((p - 1) * static_cast<double>(a.d_scale)));
}

}  // namespace

void cross_entropy_part(const CrossEntropyPart& a, Stream s) {
  if (a.rows == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    LAUNCH(part_kernel<T>, blocks_for(a.rows, 1), dim3(kThreads), 0, native(s), a.part, as<T>(a.logits), a.target, a.v,
           a.v_begin, a.ld != 0 ? a.ld : a.v);
  });
}

void cross_entropy_finish(const CrossEntropyFinish& a, Stream s) {
  CHECK(a.n_parts > 0 || a.rows == 0, "cross_entropy_finish: no parts");
  if (a.rows == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const Finish<T> finish{a.loss,    as<T>(a.logits),        a.parts,  a.n_parts, a.rows, a.target, a.v,
                           a.v_begin, a.ld != 0 ? a.ld : a.v, a.d_scale};
    LAUNCH(finish_kernel<T>, blocks_for(a.rows, 1), dim3(kThreads), 0, native(s), finish);
  });
}

}  // namespace rw::cuda
