// RMSNorm and LayerNorm: a block a row. The row is read once and kept in shared memory as f32.
#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

// Threads of a block for rows of c: whole warps, about four elements a thread.
int threads_for(int64_t c) {
  const int64_t warps = (c + 4 * kWarp - 1) / (4 * kWarp);
  return static_cast<int>(warps < 1 ? 1 : warps > 16 ? 16 : warps) * kWarp;
}
size_t row_bytes(int64_t c) { return static_cast<size_t>(c) * sizeof(float); }

template <class T>
struct NormRows {
  T* y;
  float *mean, *rstd;
  const T *x, *add;
  T* sum;
  const float *w, *b;
  int64_t c;
  float eps;
  bool layer;
};

template <class T>
__global__ void norm_fwd_kernel(NormRows<T> a) {
  DYN_SHARED(float, row);
  const int64_t r = blockIdx.x, at = r * a.c;
  const float n = static_cast<float>(a.c);
  float total = 0;
  for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
    float v = to_float(a.x[at + i]);
    if (a.add != nullptr) {
      const T stored = from_float<T>(v + to_float(a.add[at + i]));
      a.sum[at + i] = stored;
      v = to_float(stored);  // the norm of what a later reader sees
    }
    row[i] = v;
    total += v;
  }
  const float mean = a.layer ? block_sum(total) / n : 0.F;
  float squares = 0;
  for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
    const float d = row[i] - mean;
    squares += d * d;
  }
  const float rstd = 1.F / sqrtf(block_sum(squares) / n + a.eps);
  for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
    const float normed = (row[i] - mean) * rstd * a.w[i];
    a.y[at + i] = from_float<T>(a.b != nullptr ? normed + a.b[i] : normed);
  }
  if (threadIdx.x == 0) {
    a.rstd[r] = rstd;
    if (a.layer) a.mean[r] = mean;
  }
}

template <class T>
struct NormGrads {
  T* d_x;
  const T *d_y, *x, *d_res;
  const float *mean, *rstd, *w;
  int64_t c;
  bool layer;
};

// With h = (x - mean) * rstd and g = w * d_y:  d_x = rstd * (g - mean(g) - h * mean(g * h)); RMSNorm lacks mean(g).
template <class T>
__global__ void norm_bwd_kernel(NormGrads<T> a) {
  DYN_SHARED(float, rows);
  float *g = rows, *h = rows + a.c;
  const int64_t r = blockIdx.x, at = r * a.c;
  const float n = static_cast<float>(a.c), rstd = a.rstd[r], mean = a.layer ? a.mean[r] : 0.F;
  float sum = 0, dot = 0;
  for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
    g[i] = a.w[i] * to_float(a.d_y[at + i]);
    h[i] = to_float(a.x[at + i]) - mean;
    sum += g[i];
    dot += g[i] * h[i];
  }
  const float mean_g = a.layer ? block_sum(sum) / n : 0.F;
  const float mean_gh = block_sum(dot) * rstd / n;
  for (int64_t i = threadIdx.x; i < a.c; i += blockDim.x) {
    const float d = rstd * (g[i] - mean_g - h[i] * rstd * mean_gh);
    a.d_x[at + i] = from_float<T>(a.d_res != nullptr ? d + to_float(a.d_res[at + i]) : d);
  }
}

template <class T>
struct NormColumn {
  const T *d_y, *x;
  const float *mean, *rstd;
  int64_t c;
  __device__ float operator()(int64_t r, int64_t i) const {
    const float m = mean != nullptr ? mean[r] : 0.F;
    return to_float(d_y[r * c + i]) * ((to_float(x[r * c + i]) - m) * rstd[r]);
  }
};

}  // namespace

void norm_fwd(const NormFwd& a, Stream s) {
  if (a.rows == 0 || a.c == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const NormRows<T> rows{as<T>(a.y),
                           a.mean,
                           a.rstd,
                           as<T>(a.x),
                           as<T>(a.add),
                           as<T>(a.sum),
                           a.w,
                           a.b,
                           a.c,
                           a.eps,
                           a.kind == NormKind::layer};
    allow_shared(norm_fwd_kernel<T>, row_bytes(a.c));
    LAUNCH(norm_fwd_kernel<T>, blocks_for(a.rows, 1), dim3(threads_for(a.c)), row_bytes(a.c), native(s), rows);
  });
}

void norm_bwd(const NormBwd& a, Stream s) {
  if (a.c == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T *d_y = as<T>(a.d_y), *x = as<T>(a.x);
    const bool layer = a.kind == NormKind::layer;
    const int64_t c = a.c;
    // Before d_x, which may overwrite d_y.
    if (a.d_w != nullptr)
      column_sums(NormColumn<T>{d_y, x, layer ? a.mean : nullptr, a.rstd, c}, {a.d_w, a.rows, c, a.write}, s);
    if (a.d_b != nullptr) column_sums(MatrixColumn<T>{d_y, c}, {a.d_b, a.rows, c, a.write}, s);
    if (a.d_x == nullptr || a.rows == 0) return;
    const NormGrads<T> grads{as<T>(a.d_x), d_y, x, as<T>(a.d_res), a.mean, a.rstd, a.w, c, layer};
    allow_shared(norm_bwd_kernel<T>, 2 * row_bytes(c));
    LAUNCH(norm_bwd_kernel<T>, blocks_for(a.rows, 1), dim3(threads_for(c)), 2 * row_bytes(c), native(s), grads);
  });
}

}  // namespace rw::cuda
