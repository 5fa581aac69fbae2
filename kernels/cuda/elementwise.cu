// One element in, one out: each thread has one piece of 16 bytes where everything is aligned, else one element.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;

// y[i] = f(i) for the elements of this thread; F reads through get(pointer, j), which serves pieces and single elements
// alike.
template <int kEach, class T, class Y, class F>
__device__ __forceinline__ void map_piece(Y* y, int64_t n, const T* a, const T* b, F f) {
  const int64_t i = global_index() * kEach;
  if (kEach > 1 && i + kEach <= n) {
    const Piece<T> pa = load_piece(a + i);
    const Piece<T> pb = b != nullptr ? load_piece(b + i) : pa;
    Piece<Y> out;
#pragma unroll
    for (int j = 0; j < kEach; ++j) out.x[j] = from_float<Y>(f(to_float(pa.x[j]), to_float(pb.x[j])));
    store_piece(y + i, out);
  } else {
    for (int64_t j = i; j < i + kEach && j < n; ++j)
      y[j] = from_float<Y>(f(to_float(a[j]), b != nullptr ? to_float(b[j]) : 0.F));
  }
}

template <int kEach, class T>
__global__ void add_kernel(T* y, const T* a, const T* b, int64_t n) {
  map_piece<kEach>(y, n, a, b, [](float u, float v) { return u + v; });
}
template <int kEach, class T>
__global__ void scale_kernel(T* y, float s, int64_t n) {
  map_piece<kEach>(y, n, static_cast<const T*>(y), static_cast<const T*>(nullptr),
                   [s](float u, float) { return u * s; });
}
template <class Y, class X>
__global__ void cast_kernel(Y* y, const X* x, int64_t n) {
  map_piece<1>(y, n, x, static_cast<const X*>(nullptr), [](float u, float) { return u; });
}

}  // namespace

void add(const Add& a, Stream s) {
  if (a.n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = Piece<T>::kSize;
    T* y = as<T>(a.y);
    const T *u = as<T>(a.a), *v = as<T>(a.b);
    if (takes_pieces(y, kSize) && takes_pieces(u, kSize) && takes_pieces(v, kSize))
      LAUNCH((add_kernel<kSize, T>), blocks_for(a.n, kThreads * kSize), dim3(kThreads), 0, native(s), y, u, v, a.n);
    else LAUNCH((add_kernel<1, T>), blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), y, u, v, a.n);
  });
}

void scale(const Scale& a, Stream s) {
  if (a.n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    constexpr int kSize = Piece<T>::kSize;
    T* y = as<T>(a.y);
    if (takes_pieces(y, kSize))
      LAUNCH((scale_kernel<kSize, T>), blocks_for(a.n, kThreads * kSize), dim3(kThreads), 0, native(s), y, a.s, a.n);
    else LAUNCH((scale_kernel<1, T>), blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), y, a.s, a.n);
  });
}

void cast(const Cast& a, Stream s) {
  if (a.n == 0) return;
  with_type(a.xt, [&](auto from) {
    using X = decltype(from);
    with_type(a.yt, [&](auto to) {
      using Y = decltype(to);
      LAUNCH((cast_kernel<Y, X>), blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), as<Y>(a.y), as<X>(a.x), a.n);
    });
  });
}

void zero(const Zero& a, Stream s) {
  if (a.bytes > 0) RW_CUDA(cudaMemsetAsync(a.y, 0, static_cast<size_t>(a.bytes), native(s)));
}

void read(const Read& a, Stream s) {
  if (a.n == 0) return;
  const auto bytes = static_cast<size_t>(a.n * dtype_bytes(a.t));
  RW_CUDA(cudaMemcpyAsync(a.host, a.device, bytes, cudaMemcpyDeviceToHost, native(s)));
  RW_CUDA(cudaStreamSynchronize(native(s)));
}

void upload(const Upload& a, Stream s) {
  if (a.bytes > 0 && a.device != a.host)
    RW_CUDA(cudaMemcpyAsync(a.device, a.host, static_cast<size_t>(a.bytes), cudaMemcpyHostToDevice, native(s)));
}

}  // namespace rw::cuda
