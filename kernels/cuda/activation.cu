// gelu(x) = x/2 (1 + tanh u) with u = sqrt(2/pi) (x + 0.044715 x^3) is x * sigmoid(2u); swiglu is silu(gate) * up.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kA = 1.5957691216F;  // 2 sqrt(2/pi)
constexpr float kB = 0.044715F * kA;

// 1 / (1 + e^-x) and what is left of it to 1, each without cancellation.
struct Sigmoid {
  float s, rest;
};
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  const float e = expf(-fabsf(x)), big = 1.F / (1.F + e), small = e * big;
  return x >= 0 ? Sigmoid{big, small} : Sigmoid{small, big};
}

struct Gelu {
  __device__ float operator()(float x) const { return x * sigmoid(x * (kA + kB * x * x)).s; }
};
struct GeluSlope {
  __device__ float operator()(float x) const {
    const Sigmoid g = sigmoid(x * (kA + kB * x * x));
    return g.s + x * g.s * g.rest * (kA + 3.F * kB * x * x);
  }
};

template <class T>
__global__ void gelu_fwd_kernel(T* y, const T* x, int64_t n) {
  const int64_t i = global_index();
  if (i < n) y[i] = from_float<T>(Gelu{}(to_float(x[i])));
}
template <class T>
__global__ void gelu_bwd_kernel(T* d_x, const T* d_y, const T* x, int64_t n) {
  const int64_t i = global_index();
  if (i < n) d_x[i] = from_float<T>(to_float(d_y[i]) * GeluSlope{}(to_float(x[i])));
}

// kEach neighbours of a row: a piece of 16 bytes, or one.
template <int kEach, class T>
struct Several {
  T x[kEach];
};
template <int kEach, class T>
__device__ __forceinline__ auto load_each(const T* at) {
  if constexpr (kEach == 1) return Several<1, T>{{*at}};
  else return load_piece(at);
}
template <int kEach, class T, class Values>
__device__ __forceinline__ void store_each(T* at, const Values& values) {
  if constexpr (kEach == 1) *at = values.x[0];
  else store_piece(at, values);
}
// Of this thread in a row, blockIdx.x.
template <int kEach>
__device__ __forceinline__ int64_t first_column() {
  return (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kEach;
}

template <int kEach, class T>
__global__ void swiglu_fwd_kernel(T* y, const T* x, int64_t f) {
  const int64_t r = blockIdx.x, j = first_column<kEach>();
  if (j >= f) return;
  const auto gates = load_each<kEach>(x + r * 2 * f + j), ups = load_each<kEach>(x + r * 2 * f + f + j);
  auto out = gates;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float gate = to_float(gates.x[i]);
    out.x[i] = from_float<T>(gate * sigmoid(gate).s * to_float(ups.x[i]));
  }
  store_each<kEach>(y + r * f + j, out);
}
// d silu = s (1 + x (1 - s)).
template <int kEach, class T>
__global__ void swiglu_bwd_kernel(T* d_x, const T* d_y, const T* x, int64_t f) {
  const int64_t r = blockIdx.x, j = first_column<kEach>(), at = r * 2 * f + j;
  if (j >= f) return;
  const auto gates = load_each<kEach>(x + at), ups = load_each<kEach>(x + at + f),
             ds = load_each<kEach>(d_y + r * f + j);
  auto d_gates = gates, d_ups = gates;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const float gate = to_float(gates.x[i]), up = to_float(ups.x[i]), d = to_float(ds.x[i]);
    const Sigmoid g = sigmoid(gate);
    d_gates.x[i] = from_float<T>(d * up * (g.s * (1.F + gate * g.rest)));
    d_ups.x[i] = from_float<T>(d * (gate * g.s));
  }
  store_each<kEach>(d_x + at, d_gates);
  store_each<kEach>(d_x + at + f, d_ups);
}
template <int kEach>
dim3 swiglu_grid(int64_t rows, int64_t f) {
  dim3 grid = blocks_for(rows, 1);
  grid.y = blocks_for(f, int64_t{kThreads} * kEach).x;
  return grid;
}

}  // namespace

void gelu_fwd(const GeluFwd& a, Stream s) {
  if (a.n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    LAUNCH(gelu_fwd_kernel<T>, blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), as<T>(a.y), as<T>(a.x), a.n);
  });
}
void gelu_bwd(const GeluBwd& a, Stream s) {
  if (a.n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    LAUNCH(gelu_bwd_kernel<T>, blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), as<T>(a.d_x), as<T>(a.d_y),
           as<T>(a.x), a.n);
  });
}
void swiglu_fwd(const SwigluFwd& a, Stream s) {
  if (a.rows * a.f == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = Piece<T>::kSize;
    T* y = as<T>(a.y);
    const T* x = as<T>(a.x);
    if (takes_pieces(y, a.f) && takes_pieces(x, a.f))
      LAUNCH((swiglu_fwd_kernel<kSize, T>), swiglu_grid<kSize>(a.rows, a.f), dim3(kThreads), 0, native(s), y, x, a.f);
    else LAUNCH((swiglu_fwd_kernel<1, T>), swiglu_grid<1>(a.rows, a.f), dim3(kThreads), 0, native(s), y, x, a.f);
  });
}
void swiglu_bwd(const SwigluBwd& a, Stream s) {
  if (a.rows * a.f == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = Piece<T>::kSize;
    T* d_x = as<T>(a.d_x);
    const T *d_y = as<T>(a.d_y), *x = as<T>(a.x);
    if (takes_pieces(d_x, a.f) && takes_pieces(d_y, a.f) && takes_pieces(x, a.f))
      LAUNCH((swiglu_bwd_kernel<kSize, T>), swiglu_grid<kSize>(a.rows, a.f), dim3(kThreads), 0, native(s), d_x, d_y, x,
             a.f);
    else LAUNCH((swiglu_bwd_kernel<1, T>), swiglu_grid<1>(a.rows, a.f), dim3(kThreads), 0, native(s), d_x, d_y, x, a.f);
  });
}

}  // namespace rw::cuda
