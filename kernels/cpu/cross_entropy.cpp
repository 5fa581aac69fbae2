// One pass over a row finds maximum and sum together (online softmax, Milakov & Gimelshein 2018); shares of a row are
// put together by the same rule. The second pass, for the gradient, needs both of the whole row.
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

// part[r] of the row x of v logits.
template <class T>
void row_part(float* part, const T* x, int64_t v, int64_t target) {
  const Softmax m = softmax_of(x, v);
  part[0] = m.sum == 0 ? -__builtin_inff() : m.max;  // nothing counts: the maximum of no logits
  part[1] = m.sum;
  part[2] = target >= 0 && target < v ? to_f32(x[target]) : -__builtin_inff();
}

// The whole row, from its parts.
struct Row {
  Softmax all;
  float hit;  // the target's logit
};
Row combined(const CrossEntropyFinish& a, int64_t r) {
  const float* const first = a.parts + r * 3;
  const int64_t stride = a.rows * 3;
  Row row{{first[0], 0}, first[2]};
  for (int64_t i = 1; i < a.n_parts; ++i) {
    const float* part = first + i * stride;
    row.all.max = part[0] > row.all.max ? part[0] : row.all.max;
    row.hit = part[2] > row.hit ? part[2] : row.hit;
  }
  for (int64_t i = 0; i < a.n_parts; ++i) {
    const float* part = first + i * stride;
    row.all.sum += part[0] == row.all.max ? part[1] : part[1] * vexp(splat(part[0] - row.all.max))[0];
  }
  return row;
}

template <class T>
void row_finish(const CrossEntropyFinish& a, int64_t r) {
  T* x = static_cast<T*>(a.logits) + r * (a.ld ? a.ld : a.v);
  if (a.target[r] < 0) {
    a.loss[r] = 0;
    if (a.d_scale != 0 && a.v > 0) __builtin_memset(x, 0, static_cast<uint64_t>(a.v) * sizeof(T));
    return;
  }
  const Row row = combined(a, r);
  a.loss[r] = static_cast<float>(log(double{row.all.sum}) + (double{row.all.max} - double{row.hit}));
  if (a.d_scale == 0) return;
  const float scale = a.d_scale / row.all.sum;
  each_vector(0, a.v, [&](int64_t i, auto part) RW_LAMBDA {
    store(x + i, vexp(load(x + i, part) - row.all.max) * scale, part);
  });
  const int64_t target = a.target[r] - a.v_begin;
  if (target < 0 || target >= a.v) return;
  // in double: near a probability of 1 the float quotient would leave only its rounding error
  const double p = exp(double{row.hit} - double{row.all.max}) / double{row.all.sum};
  store_n(x + target, splat(static_cast<float>((p - 1) * double{a.d_scale})), 1);
}

}  // namespace

void cross_entropy_part(const CrossEntropyPart& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T* logits = static_cast<const T*>(a.logits);
    const int64_t ld = a.ld ? a.ld : a.v;
    parallel_ranges(s.threads, a.rows, row_grain(a.v), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row_part(a.part + r * 3, logits + r * ld, a.v, a.target[r] - a.v_begin);
    });
  });
}

void cross_entropy_finish(const CrossEntropyFinish& a, Stream s) {
  CHECK(a.n_parts > 0 || a.rows == 0, "cross_entropy_finish: no parts");
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.d_scale == 0 ? a.n_parts : a.v), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) row_finish<T>(a, r);
    });
  });
}

}  // namespace rw::RW_ISA
