// The product with quantised weights: rows of a become whole numbers of 16 bits, then one of two kernels multiplies.
// Both add the same terms in the same order.
#include "kernels/cuda/quant_layout.cuh"
#include "kernels/cuda/quant_rounding.cuh"
#include "kernels/cuda/table.h"
#include "kernels/device_sizes.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kFewRows = 4;

// A warp has a block of a row.
template <class T>
__global__ void round_rows_kernel(signed char* numbers, float* scales, const T* a, int64_t m, int64_t lda,
                                  QuantShape q) {
  const int64_t warp = global_index() / kWarp, row = warp / q.blocks, block = warp % q.blocks;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (row >= m) return;  // the whole warp
  const int64_t first = block * q.block, left = q.k - first, n = left < q.block ? left : q.block;
  const int64_t room = q.padded - first < q.block ? q.padded - first : q.block;
  const T* const x = a + row * lda + first;
  const float scale = warp_largest(x, n, lane) / kMostOf16, by = scale > 0 ? 1.F / scale : 0.F;
  if (lane == 0) scales[row * q.blocks + block] = scale;
  signed char* const upper = numbers + row * 2 * q.padded + first;
  for (int64_t i = lane; i < room; i += kWarp) {
    const int v = i < n ? round_to_int(to_float(x[i]) * by) : 0, high = (v + 128) >> 8;
    upper[i] = static_cast<signed char>(high);
    upper[i + q.padded] = static_cast<signed char>(v - high * 256);
  }
}

}  // namespace

int64_t quant_gemm_workspace(const QuantGemm& g, Stream) { return device_quant_workspace(g); }

void quant_gemm(const QuantGemm& g, Stream s) {
  CHECK(g.ct == DType::f32 || g.ct == g.t, "quant_gemm: %s product into %s, expected f32 or %s", dtype_name(g.t),
        dtype_name(g.ct), dtype_name(g.t));
  if (g.m == 0 || g.n == 0) return;
  CHECK(g.workspace != nullptr || g.k == 0, "quant_gemm: (%lld,%lld,%lld) needs a workspace",
        static_cast<long long>(g.m), static_cast<long long>(g.n), static_cast<long long>(g.k));
  const QuantShape q = quant_shape(g.bits, g.group, g.n, g.k);
  const QuantRows rows = rows_at(g.workspace, g.m, q);
  if (g.k > 0)
    with_type(g.t, [&](auto element) {
      using T = decltype(element);
      LAUNCH(round_rows_kernel<T>, blocks_for(g.m * q.blocks, kThreads / kWarp), dim3(kThreads), 0, native(s),
             as<signed char>(g.workspace), const_cast<float*>(rows.scales), as<T>(g.a), g.m, g.lda != 0 ? g.lda : g.k,
             q);
    });
  const QuantProduct p{g.c, g.bias, rows, weights_at(g.b_packed, q), g.m, g.ldc != 0 ? g.ldc : g.n, g.ct};
  (g.m <= kFewRows ? quant_few_rows : quant_many_rows)(p, s);
}

}  // namespace rw::cuda
