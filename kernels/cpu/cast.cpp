#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

template <class Y, class X>
void convert(const Cast& a, Stream s) {
  Y* y = static_cast<Y*>(a.y);
  const X* x = static_cast<const X*>(a.x);
  parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
    each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA { store(y + i, load(x + i, part), part); });
  });
}

template <class X>
void convert_from(const Cast& a, Stream s) {
  switch (a.yt) {
    case DType::f32: return convert<float, X>(a, s);
    case DType::bf16: return convert<bf16, X>(a, s);
    default: return convert<f16, X>(a, s);
  }
}

// The bits as they are, also of NaNs.
void copy(const Cast& a, int64_t element_bytes, Stream s) {
  parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
    __builtin_memmove(static_cast<char*>(a.y) + begin * element_bytes,
                      static_cast<const char*>(a.x) + begin * element_bytes,
                      static_cast<uint64_t>((end - begin) * element_bytes));
  });
}

bool castable(DType t) { return t == DType::f32 || t == DType::bf16 || t == DType::f16; }

}  // namespace

void cast(const Cast& a, Stream s) {
  CHECK(castable(a.yt) && castable(a.xt), "cast: f32, bf16 and f16 only, found dtypes %d from %d",
        static_cast<int>(a.yt), static_cast<int>(a.xt));
  if (a.yt == a.xt) return copy(a, a.xt == DType::f32 ? 4 : 2, s);
  switch (a.xt) {
    case DType::f32: return convert_from<float>(a, s);
    case DType::bf16: return convert_from<bf16>(a, s);
    default: return convert_from<f16>(a, s);
  }
}

}  // namespace rw::RW_ISA
