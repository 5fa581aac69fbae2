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
  const float e = expf(-fabsf(x)), big = 1.F / (1.F + e), small = e / (1.F + e);
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

template <class T>
__global__ void swiglu_fwd_kernel(T* y, const T* x, int64_t n, int64_t f) {
  const int64_t i = global_index();
  if (i >= n) return;
  const int64_t r = i / f, j = i % f;
  const float gate = to_float(x[r * 2 * f + j]), up = to_float(x[r * 2 * f + f + j]);
  y[i] = from_float<T>(gate * sigmoid(gate).s * up);
}
// d silu = s (1 + x (1 - s)).
template <class T>
__global__ void swiglu_bwd_kernel(T* d_x, const T* d_y, const T* x, int64_t n, int64_t f) {
  const int64_t i = global_index();
  if (i >= n) return;
  const int64_t r = i / f, j = i % f, at = r * 2 * f + j;
  const float gate = to_float(x[at]), up = to_float(x[at + f]), d = to_float(d_y[i]);
  const Sigmoid g = sigmoid(gate);
  d_x[at] = from_float<T>(d * up * (g.s * (1.F + gate * g.rest)));
  d_x[at + f] = from_float<T>(d * (gate * g.s));
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
  const int64_t n = a.rows * a.f;
  if (n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    LAUNCH(swiglu_fwd_kernel<T>, blocks_for(n, kThreads), dim3(kThreads), 0, native(s), as<T>(a.y), as<T>(a.x), n, a.f);
  });
}
void swiglu_bwd(const SwigluBwd& a, Stream s) {
  const int64_t n = a.rows * a.f;
  if (n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    LAUNCH(swiglu_bwd_kernel<T>, blocks_for(n, kThreads), dim3(kThreads), 0, native(s), as<T>(a.d_x), as<T>(a.d_y),
           as<T>(a.x), n, a.f);
  });
}

}  // namespace rw::cuda
