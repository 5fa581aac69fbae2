// One pass over a row from memory finds maximum and sum together (online softmax, Milakov & Gimelshein 2018), the
// second one, for the gradient, finds the row in the cache.
#include <cfloat>
#include <cmath>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

struct Softmax {
  float max, sum;  // sum of e^(x - max)
};

// Every lane keeps its own maximum and rescales its sum when a block of vectors raises it: one more exponential a
// block. A NaN or +inf in the row makes the sum NaN.
template <class T>
Softmax softmax_of(const T* x, int64_t v) {
  constexpr int64_t kBlock = 8;
  vf max = splat(-FLT_MAX), sum = {};
  int64_t i = 0;
  for (; i + kBlock * kW <= v; i += kBlock * kW) {
    vf z[kBlock];
    for (int64_t k = 0; k < kBlock; ++k) {
      fetch_ahead(x + i + k * kW);
      z[k] = load(x + i + k * kW);
    }
    const vf block_max = vmax(vmax(vmax(z[0], z[1]), vmax(z[2], z[3])), vmax(vmax(z[4], z[5]), vmax(z[6], z[7])));
    const vf new_max = vmax(max, block_max);
    vf part[2] = {sum * vexp(max - new_max), vf{}};
    for (int64_t k = 0; k < kBlock; ++k) part[k % 2] += vexp(z[k] - new_max);
    sum = part[0] + part[1];
    max = new_max;
  }
  each_vector(i, v, [&](int64_t j, auto part) RW_LAMBDA {
    const vf z = covered(load(x + j, part), part, -__builtin_inff()), new_max = vmax(max, z);
    sum = sum * vexp(max - new_max) + vexp(z - new_max);
    max = new_max;
  });
  const float top = hmax(max);
  return {top, hsum(sum * vexp(max - top))};
}

template <class T>
void row_loss(const CrossEntropy& a, int64_t r) {
  T* x = static_cast<T*>(a.logits) + r * (a.ld ? a.ld : a.v);
  const int64_t target = a.target[r];
  if (target < 0) {
    a.loss[r] = 0;
    if (a.d_scale != 0) __builtin_memset(x, 0, static_cast<uint64_t>(a.v) * sizeof(T));
    return;
  }
  const Softmax m = softmax_of(x, a.v);
  const float hit = to_f32(x[target]);
  a.loss[r] = static_cast<float>(log(double{m.sum}) + (double{m.max} - double{hit}));
  if (a.d_scale == 0) return;
  const float scale = a.d_scale / m.sum;
  each_vector(0, a.v,
              [&](int64_t i, auto part) RW_LAMBDA { store(x + i, vexp(load(x + i, part) - m.max) * scale, part); });
  // in double: near a probability of 1 the float quotient would leave only its rounding error
  const double p = exp(double{hit} - double{m.max}) / double{m.sum};
  store_n(x + target, splat(static_cast<float>((p - 1) * double{a.d_scale})), 1);
}

}  // namespace

void cross_entropy(const CrossEntropy& a, Stream s) {
  CHECK(a.v > 0 || a.rows == 0, "cross_entropy: no logits");
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.v), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row_loss<T>(a, r);
    });
  });
}

}  // namespace rw::RW_ISA
