#include <cmath>

#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {

void adamw(const AdamW& a, Stream s) {
  CHECK(a.step >= 1 || a.n == 0, "adamw: step %lld, the first is 1", static_cast<long long>(a.step));
  const double step = static_cast<double>(a.step);
  const float step_size = static_cast<float>(double{a.lr} / (1 - pow(double{a.beta1}, step)));
  const float inv_root2 = static_cast<float>(1 / sqrt(1 - pow(double{a.beta2}, step)));
  const float decay = static_cast<float>(1 - double{a.lr} * double{a.weight_decay});
  const float rest1 = static_cast<float>(1 - double{a.beta1}), rest2 = static_cast<float>(1 - double{a.beta2});
  parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
    each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA {
      fetch_ahead(a.g + i);
      fetch_ahead(a.m + i);
      fetch_ahead(a.v + i);
      fetch_ahead(a.p + i);
      const vf g = load(a.g + i, part) * a.grad_scale;
      const vf m = a.beta1 * load(a.m + i, part) + rest1 * g;
      const vf v = a.beta2 * load(a.v + i, part) + rest2 * g * g;
      const vf p = load(a.p + i, part) * decay - step_size * m / (vsqrt(v) * inv_root2 + a.eps);
      store(a.m + i, m, part);
      store(a.v + i, v, part);
      store(a.p + i, p, part);
    });
  });
}

}  // namespace rw::RW_ISA
