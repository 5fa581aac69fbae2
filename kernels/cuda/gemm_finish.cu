#include "kernels/cuda/gemm_finish.h"

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;

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
}  // namespace

void gemm_of_nothing(const Gemm& g, int64_t ldc, Stream s) {
  with_type(g.ct, [&](auto element) {
    using T = decltype(element);
    LAUNCH(finish_kernel<T>, blocks_for(g.m * g.n, kThreads), dim3(kThreads), 0, native(s), as<T>(g.c), g.bias, g.m,
           g.n, ldc, g.write == Write::accumulate);
  });
}

void gemm_pack(const GemmPack& p, Stream s) {
  CHECK(p.b_trans == Trans::yes, "gemm_pack: b is stored (k,n), which is multiplied with as it is (packed_bytes is 0)");
  if (p.n == 0 || p.k == 0) return;
  with_type(p.src_t, [&](auto source) {
    using S = decltype(source);
    with_type(p.t, [&](auto element) {
      using T = decltype(element);
      LAUNCH((copy_kernel<T, S>), blocks_for(p.n * p.k, kThreads), dim3(kThreads), 0, native(s), as<T>(p.packed),
             as<S>(p.b), p.n, p.k, p.ldb != 0 ? p.ldb : p.k);
    });
  });
}

}  // namespace rw::cuda
