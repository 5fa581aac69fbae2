#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {

void rope(const Rope& a, Stream s) {
  CHECK(a.d % 2 == 0, "rope: head size %lld is odd", static_cast<long long>(a.d));
  const int64_t half = a.d / 2, ld = a.ld ? a.ld : a.heads * a.d;
  const float sign = a.direction == Direction::forward ? 1.0f : -1.0f;
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    parallel_ranges(s.threads, a.rows, row_grain(a.heads * a.d), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const float *cos = a.cos + a.pos[r] * half, *sin = a.sin + a.pos[r] * half;
        for (int64_t h = 0; h < a.heads; ++h) {
          T *x = static_cast<T*>(a.x) + r * ld + h * a.d, *y = x + half;
          each_vector(0, half, [&](int64_t i, auto part) RW_LAMBDA {
            const vf u = load(x + i, part), v = load(y + i, part);
            const vf c = load(cos + i, part), w = sign * load(sin + i, part);
            store(x + i, u * c - v * w, part);
            store(y + i, v * c + u * w, part);
          });
        }
      }
    });
  });
}

}  // namespace rw::RW_ISA
