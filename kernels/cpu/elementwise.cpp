#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {

void add(const Add& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    const T *u = static_cast<const T*>(a.a), *v = static_cast<const T*>(a.b);
    T* y = static_cast<T*>(a.y);
    parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
      each_vector(begin, end,
                  [&](int64_t i, auto part) RW_LAMBDA { store(y + i, load(u + i, part) + load(v + i, part), part); });
    });
  });
}

void scale(const Scale& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    T* y = static_cast<T*>(a.y);
    parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
      each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA { store(y + i, load(y + i, part) * a.s, part); });
    });
  });
}

}  // namespace rw::RW_ISA
