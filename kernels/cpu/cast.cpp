#include "kernels/cpu/f16.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/variant.h"

namespace rw::RW_ISA {
namespace {

RW_INLINE vf load_half(const f16* p, Whole) {
  vh h;
  __builtin_memcpy(&h, p, sizeof h);
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(__builtin_bit_cast(__m256i, h));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(__builtin_bit_cast(__m128i, h));
#else
  vf v;
  for (int64_t i = 0; i < kW; ++i) v[i] = to_f32(f16{h[i]});
  return v;
#endif
}

RW_INLINE void store_half(f16* p, vf v, Whole) {
#if defined(__AVX512F__)
  const vh h = __builtin_bit_cast(vh, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  const vh h = __builtin_bit_cast(vh, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  vh h;
  for (int64_t i = 0; i < kW; ++i) h[i] = to_f16(v[i]).bits;
#endif
  __builtin_memcpy(p, &h, sizeof h);
}

RW_INLINE vf load_half(const f16* p, Short s) {
  f16 t[kW] = {};
  for (int64_t i = 0; i < s.n; ++i) t[i] = p[i];
  return load_half(t, Whole{});
}
RW_INLINE void store_half(f16* p, vf v, Short s) {
  f16 t[kW];
  store_half(t, v, Whole{});
  for (int64_t i = 0; i < s.n; ++i) p[i] = t[i];
}

template <class Part>
RW_INLINE vf load_any(const f16* p, Part part) {
  return load_half(p, part);
}
template <class T, class Part>
RW_INLINE vf load_any(const T* p, Part part) {
  return load(p, part);
}
template <class Part>
RW_INLINE void store_any(f16* p, vf v, Part part) {
  store_half(p, v, part);
}
template <class T, class Part>
RW_INLINE void store_any(T* p, vf v, Part part) {
  store(p, v, part);
}

template <class Y, class X>
void convert(const Cast& a, Stream s) {
  Y* y = static_cast<Y*>(a.y);
  const X* x = static_cast<const X*>(a.x);
  parallel_ranges(s.threads, a.n, kElementGrain, [&](int64_t begin, int64_t end) {
    each_vector(begin, end, [&](int64_t i, auto part) RW_LAMBDA { store_any(y + i, load_any(x + i, part), part); });
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
