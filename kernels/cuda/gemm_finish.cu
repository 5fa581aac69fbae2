#include "kernels/cuda/gemm_finish.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256, kTile = 32;

template <class T>
__global__ void finish_kernel(T* c, const float* bias, int64_t m, int64_t n, int64_t ldc, bool accumulate) {
  const int64_t i = global_index();
  if (i >= m * n) return;
  const int64_t r = i / n, j = i % n;
  T* const at = c + r * ldc + j;
  float v = bias != nullptr ? bias[j] : 0.F;
  if (accumulate) v += to_float(*at);
  *at = from_float<T>(v);
}

// packed(n,k) from b(n,k): as it is.
template <class T, class S>
__global__ void copy_kernel(T* packed, const S* b, int64_t n, int64_t k, int64_t ld) {
  const int64_t i = global_index();
  if (i < n * k) packed[i] = from_float<T>(to_float(b[i / k * ld + i % k]));
}
// packed(n,k) from b(k,n): turned, tile by tile through shared memory, so that both sides go by rows.
template <class T, class S>
__global__ void turn_kernel(T* packed, const S* b, int64_t n, int64_t k, int64_t ld) {
  SHARED(float, tile, kTile*(kTile + 1));
  const int64_t n0 = static_cast<int64_t>(blockIdx.x) * kTile, k0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int x = static_cast<int>(threadIdx.x), y0 = static_cast<int>(threadIdx.y), step = static_cast<int>(blockDim.y);
  for (int y = y0; y < kTile; y += step)
    if (k0 + y < k && n0 + x < n) tile[y * (kTile + 1) + x] = to_float(b[(k0 + y) * ld + n0 + x]);
  __syncthreads();
  for (int y = y0; y < kTile; y += step)
    if (n0 + y < n && k0 + x < k) packed[(n0 + y) * k + k0 + x] = from_float<T>(tile[x * (kTile + 1) + y]);
}

}  // namespace

void gemm_of_nothing(const Gemm& g, int64_t ldc, Stream s) {
  with_type(g.ct, [&](auto element) {
    using T = decltype(element);
    LAUNCH(finish_kernel<T>, blocks_for(g.m * g.n, kThreads), dim3(kThreads), 0, native(s), as<T>(g.c), g.bias, g.m,
           g.n, ldc, g.write == Write::accumulate);
  });
}

void gemm_pack(const GemmPack& p, Stream s) {
  if (p.n == 0 || p.k == 0) return;
  with_type(p.src_t, [&](auto source) {
    using S = decltype(source);
    with_type(p.t, [&](auto element) {
      using T = decltype(element);
      if (p.b_trans == Trans::yes) {
        LAUNCH((copy_kernel<T, S>), blocks_for(p.n * p.k, kThreads), dim3(kThreads), 0, native(s), as<T>(p.packed),
               as<S>(p.b), p.n, p.k, p.ldb != 0 ? p.ldb : p.k);
        return;
      }
      dim3 grid = blocks_for(p.n, kTile);
      grid.y = blocks_for(p.k, kTile).x;
      LAUNCH((turn_kernel<T, S>), grid, dim3(kTile, 8), 0, native(s), as<T>(p.packed), as<S>(p.b), p.n, p.k,
             p.ldb != 0 ? p.ldb : p.n);
    });
  });
}

}  // namespace rw::cuda
