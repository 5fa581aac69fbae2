// Rotary embedding: a thread a pair.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Pairs {
  T* x;
  const int32_t* pos;
  const float *cos, *sin;
  int64_t rows, heads, half, ld;
  float sign;  // -1: the inverse
};

template <class T>
__global__ void rope_kernel(Pairs<T> a) {
  const int64_t i = global_index();
  if (i >= a.rows * a.heads * a.half) return;
  const int64_t pair = i % a.half, head = i / a.half % a.heads, row = i / (a.half * a.heads);
  const int64_t angle = static_cast<int64_t>(a.pos[row]) * a.half + pair;
  const float c = a.cos[angle], s = a.sign * a.sin[angle];
  T* const at = a.x + row * a.ld + head * 2 * a.half + pair;
  const float u = to_float(at[0]), v = to_float(at[a.half]);
  at[0] = from_float<T>(u * c - v * s);
  at[a.half] = from_float<T>(v * c + u * s);
}

}  // namespace

void rope(const Rope& a, Stream s) {
  const int64_t n = a.rows * a.heads * (a.d / 2);
  if (n == 0) return;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const Pairs<T> pairs{as<T>(a.x),
                         a.pos,
                         a.cos,
                         a.sin,
                         a.rows,
                         a.heads,
                         a.d / 2,
                         a.ld != 0 ? a.ld : a.heads * a.d,
                         a.direction == Direction::inverse ? -1.F : 1.F};
    LAUNCH(rope_kernel<T>, blocks_for(n, kThreads), dim3(kThreads), 0, native(s), pairs);
  });
}

}  // namespace rw::cuda
