#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

// Statistics are taken of the values as stored, since the backward reads those.
template <class T>
void norm_row(const NormFwd& a, int64_t r) {
  const int64_t c = a.c;
  const T* x = static_cast<const T*>(a.x) + r * c;
  vf acc[4] = {};
  if (a.add) {
    const T* add = static_cast<const T*>(a.add) + r * c;
    T* sum = static_cast<T*>(a.sum) + r * c;
    each_vector(0, c,
                [&](int64_t i, auto part) RW_LAMBDA { store(sum + i, load(x + i, part) + load(add + i, part), part); });
    x = sum;
  }
  // One piece of code for both: a norm that is made again from the stored sum has the bits of the first.
  each_vector4(c, [&](int64_t i, int k, auto part) RW_LAMBDA {
    const vf v = load(x + i, part);
    acc[k] += a.kind == NormKind::rms ? v * v : v;
  });
  const float total = hsum((acc[0] + acc[1]) + (acc[2] + acc[3])), n = static_cast<float>(c);
  float mean = 0, square = total / n;
  if (a.kind == NormKind::layer) {
    mean = total / n;
    vf dev[4] = {};
    each_vector4(c, [&](int64_t i, int k, auto part) RW_LAMBDA {
      const vf v = covered(load(x + i, part) - mean, part, 0.0f);
      dev[k] += v * v;
    });
    square = hsum((dev[0] + dev[1]) + (dev[2] + dev[3])) / n;
    a.mean[r] = mean;
  }
  const float rstd = 1.0f / __builtin_sqrtf(square + a.eps);
  a.rstd[r] = rstd;
  T* y = static_cast<T*>(a.y) + r * c;
  if (a.b) {
    each_vector(0, c, [&](int64_t i, auto part) RW_LAMBDA {
      store(y + i, (load(x + i, part) - mean) * rstd * load(a.w + i, part) + load(a.b + i, part), part);
    });
  } else {
    each_vector(0, c, [&](int64_t i, auto part) RW_LAMBDA {
      store(y + i, (load(x + i, part) - mean) * rstd * load(a.w + i, part), part);
    });
  }
}

}  // namespace

void norm_fwd(const NormFwd& a, Stream s) {
  CHECK(!a.add || a.sum, "norm_fwd: add is given without sum");
  CHECK(a.kind == NormKind::rms || a.mean || a.rows == 0, "norm_fwd: layer norm needs mean");
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.c), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) norm_row<T>(a, r);
    });
  });
}

}  // namespace rw::RW_ISA
