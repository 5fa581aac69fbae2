#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;

struct Update {
  float *p, *m, *v;
  const float* g;
  int64_t n;
  float step_size, inv_root2, decay, beta1, beta2, rest1, rest2, eps, grad_scale;
};

__device__ __forceinline__ void update(const Update& a, float& p, float& m, float& v, float g) {
  g *= a.grad_scale;
  m = a.beta1 * m + a.rest1 * g;
  v = a.beta2 * v + a.rest2 * g * g;
  p = p * a.decay - a.step_size * m / (sqrtf(v) * a.inv_root2 + a.eps);
}

template <int kEach>
__global__ void adamw_kernel(Update a) {
  const int64_t i = global_index() * kEach;
  if (kEach > 1 && i + kEach <= a.n) {
    Piece<float> p = load_piece(a.p + i), m = load_piece(a.m + i), v = load_piece(a.v + i);
    const Piece<float> g = load_piece(a.g + i);
    for (int j = 0; j < Piece<float>::kSize; ++j) update(a, p.x[j], m.x[j], v.x[j], g.x[j]);
    store_piece(a.p + i, p);
    store_piece(a.m + i, m);
    store_piece(a.v + i, v);
  } else {
    for (int64_t j = i; j < i + kEach && j < a.n; ++j) update(a, a.p[j], a.m[j], a.v[j], a.g[j]);
  }
}

// A block a partial; squares are exact in f64.
__global__ void sum_squares_kernel(double* partial, const float* x, int64_t n, int64_t block) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * block, end = begin + block < n ? begin + block : n;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

}  // namespace

void adamw(const AdamW& a, Stream s) {
  if (a.n == 0) return;
  CHECK(a.step >= 1, "adamw: step %lld, the first is 1", static_cast<long long>(a.step));
  const auto step = static_cast<double>(a.step);
  Update u{};
  u.p = a.p, u.m = a.m, u.v = a.v, u.g = a.g, u.n = a.n;
  u.step_size = static_cast<float>(double{a.lr} / (1 - std::pow(double{a.beta1}, step)));
  u.inv_root2 = static_cast<float>(1 / std::sqrt(1 - std::pow(double{a.beta2}, step)));
  u.decay = static_cast<float>(1 - double{a.lr} * double{a.weight_decay});
  u.beta1 = a.beta1, u.beta2 = a.beta2;
  u.rest1 = static_cast<float>(1 - double{a.beta1});
  u.rest2 = static_cast<float>(1 - double{a.beta2});
  u.eps = a.eps, u.grad_scale = a.grad_scale;
  constexpr int kSize = Piece<float>::kSize;
  if (takes_pieces(a.p, kSize) && takes_pieces(a.m, kSize) && takes_pieces(a.v, kSize) && takes_pieces(a.g, kSize))
    LAUNCH(adamw_kernel<kSize>, blocks_for(a.n, kThreads * kSize), dim3(kThreads), 0, native(s), u);
  else LAUNCH(adamw_kernel<1>, blocks_for(a.n, kThreads), dim3(kThreads), 0, native(s), u);
}

void sum_squares(const SumSquares& a, Stream s) {
  CHECK(a.block > 0, "sum_squares: block %lld", static_cast<long long>(a.block));
  if (a.n == 0) return;
  LAUNCH(sum_squares_kernel, blocks_for(a.n, a.block), dim3(kThreads), 0, native(s), a.partial, a.x, a.n, a.block);
}

}  // namespace rw::cuda
