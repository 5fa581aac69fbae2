// The types that pages of keys and values have, and how whole numbers become vectors. Compiled once per instruction set
// (see simd.h).
#pragma once
#include "kernels/cpu/simd.h"
#include "kernels/dtype.h"
#include "libcore/base/check.h"

namespace rw::RW_ISA {

// The compiler would convert bytes one by one.
RW_INLINE vf load(const int8_t* p) {
#if defined(__AVX512F__)
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  typedef int8_t vb __attribute__((vector_size(kW)));
  vb b;
  __builtin_memcpy(&b, p, sizeof b);
  return __builtin_convertvector(b, vf);
#endif
}
RW_INLINE vf load_n(const int8_t* p, int64_t n) {
  int8_t t[kW] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
}

// f(float{}), f(bf16{}), f(f16{}) or f(int8_t{}).
template <class Args, class F>
RW_INLINE void with_page_type(const Args& a, const char* op, const F& f) {
  CHECK(a.kv_t != DType::i8 || (a.k_scales && a.v_scales), "%s: pages of i8 without scales", op);
  switch (a.kv_t) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    case DType::i8: return f(int8_t{});
    default: CHECK(false, "%s: pages of %s, expected f32, bf16, f16 or i8", op, dtype_name(a.kv_t));
  }
}

}  // namespace rw::RW_ISA
