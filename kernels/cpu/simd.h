// Float vectors for kernels that are compiled once per instruction set (see kernels/meson.build): kW lanes, written
// with the compiler's vector types, so that -  * / < ?: work lane by lane on every target, and with intrinsics where
// the compiler does not find the instruction. No function here needs alignment beyond the element's.
//
// A file that includes this is built several times, with RW_ISA naming the namespace of the build. It must put all it
// defines into rw::RW_ISA or an anonymous namespace and use no inline function or template from elsewhere: the linker
// keeps one copy of those, possibly the one with AVX-512 instructions, for everybody. tests/kernels/symbols.sh checks.
#pragma once
#ifndef RW_ISA
#error "kernels/cpu/simd.h: RW_ISA must name the namespace of this build, e.g. cpu_avx2"
#endif
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include <cstdint>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/f16.h"

#define RW_INLINE [[gnu::always_inline]] inline

namespace rw::RW_ISA {

#if defined(__AVX512F__)
constexpr int64_t kW = 16;
#elif defined(__AVX2__)
constexpr int64_t kW = 8;
#else
constexpr int64_t kW = 4;
#endif

typedef float vf __attribute__((vector_size(kW * 4)));
typedef int32_t vi __attribute__((vector_size(kW * 4)));
typedef uint32_t vu __attribute__((vector_size(kW * 4)));
typedef uint16_t vh __attribute__((vector_size(kW * 2)));

RW_INLINE vf splat(float x) { return x - vf{}; }
RW_INLINE vi as_int(vf x) { return __builtin_bit_cast(vi, x); }
RW_INLINE vf as_float(vi x) { return __builtin_bit_cast(vf, x); }
RW_INLINE vi splat_int(int32_t x) { return x - vi{}; }

// ---- memory ---------------------------------------------------------------------------------------------------------

RW_INLINE vf load(const float* p) {
  vf v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
RW_INLINE void store(float* p, vf v) { __builtin_memcpy(p, &v, sizeof v); }

RW_INLINE vf widen(vh h) {
#if defined(__AVX512F__)
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(__builtin_bit_cast(__m256i, h)), 16));
#else
  return __builtin_bit_cast(vf, __builtin_convertvector(h, vu) << 16);
#endif
}

// To bf16 bits, round to nearest even; NaN stays NaN. The AVX512-BF16 instruction flushes subnormals to zero.
RW_INLINE vh narrow(vf v) {
#if defined(__AVX512BF16__)
  return __builtin_bit_cast(vh, _mm512_cvtneps_pbh(v));
#else
  const vu u = __builtin_bit_cast(vu, v);
  const vu rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const vu bits = v == v ? rounded : (u >> 16) | 0x40u;
  return __builtin_convertvector(bits, vh);
#endif
}

RW_INLINE vf load(const bf16* p) {
  vh h;
  __builtin_memcpy(&h, p, sizeof h);
  return widen(h);
}
RW_INLINE void store(bf16* p, vf v) {
  const vh h = narrow(v);
  __builtin_memcpy(p, &h, sizeof h);
}

// IEEE half, converted as f16.h says: by the F16C instruction, or below AVX2 by the same steps in vectors.
RW_INLINE vf widen_half(vh h) {
#if defined(__AVX512F__)
  return _mm512_cvtph_ps(__builtin_bit_cast(__m256i, h));
#elif defined(__AVX2__)
  return _mm256_cvtph_ps(__builtin_bit_cast(__m128i, h));
#else
  const vu u = __builtin_convertvector(h, vu), a = u & 0x7fffu;
  const vf finite = __builtin_bit_cast(vf, a << 13) * 0x1p112f;  // the exponents' biases differ by 112; exact
  const vu quiet = a > 0x7c00u ? vu{} + 0x400000u : vu{};
  const vu bits = a >= 0x7c00u ? (a << 13) | 0x7f800000u | quiet : __builtin_bit_cast(vu, finite);
  return __builtin_bit_cast(vf, bits | (u & 0x8000u) << 16);
#endif
}
RW_INLINE vh narrow_half(vf v) {
#if defined(__AVX512F__)
  return __builtin_bit_cast(vh, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
  return __builtin_bit_cast(vh, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
#else
  const vu u = __builtin_bit_cast(vu, v), a = u & 0x7fffffffu;
  const vu normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  const vu small = __builtin_bit_cast(vu, __builtin_bit_cast(vf, a) + 0.5f) - 0x3f000000u;
  vu bits = a < 0x38800000u ? small : normal;
  bits = a >= 0x477ff000u ? vu{} + 0x7c00u : bits;
  bits = a > 0x7f800000u ? 0x7e00u | ((a >> 13) & 0x3ffu) : bits;
  return __builtin_convertvector(bits | (u >> 16 & 0x8000u), vh);
#endif
}

RW_INLINE vf load(const f16* p) {
  vh h;
  __builtin_memcpy(&h, p, sizeof h);
  return widen_half(h);
}
RW_INLINE void store(f16* p, vf v) {
  const vh h = narrow_half(v);
  __builtin_memcpy(p, &h, sizeof h);
}

// The first n (0 <= n <= kW) elements, the other lanes 0; memory beyond p + n is not touched.
RW_INLINE vf load_n(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1u), p);
#else
  float t[kW] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
#endif
}
RW_INLINE void store_n(float* p, vf v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1u), v);
#else
  float t[kW];
  store(t, v);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
#endif
}
RW_INLINE vf load_n(const bf16* p, int64_t n) {
#if defined(__AVX512F__)
  return widen(__builtin_bit_cast(vh, _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p)));
#else
  bf16 t[kW] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
#endif
}
RW_INLINE void store_n(bf16* p, vf v, int64_t n) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u), __builtin_bit_cast(__m256i, narrow(v)));
#else
  bf16 t[kW];
  store(t, v);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
#endif
}

RW_INLINE vf load_n(const f16* p, int64_t n) {
#if defined(__AVX512F__)
  return widen_half(__builtin_bit_cast(vh, _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << n) - 1u), p)));
#else
  f16 t[kW] = {};
  for (int64_t i = 0; i < n; ++i) t[i] = p[i];
  return load(t);
#endif
}
RW_INLINE void store_n(f16* p, vf v, int64_t n) {
#if defined(__AVX512F__)
  _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << n) - 1u), __builtin_bit_cast(__m256i, narrow_half(v)));
#else
  f16 t[kW];
  store(t, v);
  for (int64_t i = 0; i < n; ++i) p[i] = t[i];
#endif
}

// What a value becomes by being stored as T.
template <class T>
RW_INLINE vf as_stored(vf v);
template <>
RW_INLINE vf as_stored<float>(vf v) {
  return v;
}
template <>
RW_INLINE vf as_stored<bf16>(vf v) {
  return widen(narrow(v));
}
template <>
RW_INLINE vf as_stored<f16>(vf v) {
  return widen_half(narrow_half(v));
}

// ---- lanes ----------------------------------------------------------------------------------------------------------

// The larger and the smaller; b where either is NaN.
#if defined(__AVX512F__)
RW_INLINE vf vmax(vf a, vf b) { return _mm512_max_ps(a, b); }
RW_INLINE vf vmin(vf a, vf b) { return _mm512_min_ps(a, b); }
#elif defined(__AVX2__)
RW_INLINE vf vmax(vf a, vf b) { return _mm256_max_ps(a, b); }
RW_INLINE vf vmin(vf a, vf b) { return _mm256_min_ps(a, b); }
#elif defined(__SSE2__)
RW_INLINE vf vmax(vf a, vf b) { return _mm_max_ps(a, b); }
RW_INLINE vf vmin(vf a, vf b) { return _mm_min_ps(a, b); }
#else
RW_INLINE vf vmax(vf a, vf b) { return a > b ? a : b; }
RW_INLINE vf vmin(vf a, vf b) { return a < b ? a : b; }
#endif

RW_INLINE vf vsqrt(vf x) {
#if defined(__AVX512F__)
  return _mm512_sqrt_ps(x);
#elif defined(__AVX2__)
  return _mm256_sqrt_ps(x);
#elif defined(__SSE2__)
  return _mm_sqrt_ps(x);
#else
  for (int64_t i = 0; i < kW; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

// Sum and maximum over the lanes, in a fixed order: halves are folded onto each other.
#if defined(__AVX512F__)
RW_INLINE float hsum(vf v) { return _mm512_reduce_add_ps(v); }
RW_INLINE float hmax(vf v) { return _mm512_reduce_max_ps(v); }
#else
typedef float vf4 __attribute__((vector_size(16)));
#if defined(__AVX2__)
RW_INLINE vf4 lower(vf v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3); }
RW_INLINE vf4 upper(vf v) { return __builtin_shufflevector(v, v, 4, 5, 6, 7); }
RW_INLINE vf4 fold_sum(vf v) { return lower(v) + upper(v); }
RW_INLINE vf4 fold_max(vf v) { return lower(v) > upper(v) ? lower(v) : upper(v); }
#else
RW_INLINE vf4 fold_sum(vf v) { return v; }
RW_INLINE vf4 fold_max(vf v) { return v; }
#endif
RW_INLINE float hsum(vf v) {
  vf4 s = fold_sum(v);
  s += __builtin_shufflevector(s, s, 2, 3, 0, 1);
  return s[0] + s[1];
}
RW_INLINE float hmax(vf v) {
  vf4 m = fold_max(v);
  const vf4 other = __builtin_shufflevector(m, m, 2, 3, 0, 1);
  m = m > other ? m : other;
  return m[0] > m[1] ? m[0] : m[1];
}
#endif

// ---- functions (errors are measured in tests/kernels/simd_test.cpp) -------------------------------------------------

// 1/x within 1 ulp or so for x with finite, normal reciprocal; division is 4 times slower on AVX-512.
RW_INLINE vf vrcp(vf x) {
#if defined(__AVX512F__)
  const vf r = _mm512_rcp14_ps(x);
  return r + r * (1.0f - x * r);
#else
  return 1.0f / x;
#endif
}

// x * 2^n for integral n, |n| < 252.
RW_INLINE vf vscale2(vf x, vf n) {
#if defined(__AVX512F__)
  return _mm512_scalef_ps(x, n);
#else
  const vi e = __builtin_convertvector(n, vi), half = e >> 1;  // in two factors: 2^n alone may overflow or be subnormal
  return x * as_float((half + 127) << 23) * as_float((e - half + 127) << 23);
#endif
}

// e^x: 0 below -87.33 (no subnormal results: the CPU is 35 times slower at making them), inf above 88.73, NaN kept.
// x = n ln2 + r, |r| <= ln2/2, a polynomial for e^r, scaled by 2^n.
RW_INLINE vf vexp(vf x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const vf c = vmax(splat(-87.33f), vmin(splat(89.0f), x));
  const vf n = (c * 1.44269504f + kRound) - kRound;
  const vf r = (c - n * 0.693359375f) + n * 2.12194440e-4f;  // ln2 in two parts, the first exact times |n| < 2^15
  vf p = 1.381457672e-03f * r + 8.368727455e-03f;
  p = p * r + 4.166838907e-02f;
  p = p * r + 1.666652054e-01f;
  p = p * r + 4.999999344e-01f;
  const vf y = vscale2((p * r) * r + r + 1.0f, n);
  return x < -87.33f ? splat(0.0f) : y;
}

// tanh x: an odd polynomial up to 0.625, 1 - 2/(e^2x + 1) beyond.
RW_INLINE vf vtanh(vf x) {
  const vf a = as_float(as_int(x) & 0x7fffffff), z = x * x;
  vf p = -5.664791640e-03f * z + 2.061601128e-02f;
  p = p * z - 5.373862904e-02f;
  p = p * z + 1.333154202e-01f;
  p = p * z - 3.333329255e-01f;
  const vf small = x + x * (z * p);
  const vf large = 1.0f - 2.0f * vrcp(vexp(2.0f * vmin(splat(20.0f), a)) + 1.0f);
  const vf large_signed = as_float(as_int(large) | (as_int(x) & splat_int(INT32_MIN)));
  return a > 0.625f ? large_signed : small;
}

// Natural logarithm: -inf at 0, NaN below, inf and NaN kept. x = 2^e m, sqrt(1/2) <= m < sqrt 2, a polynomial for
// log m in m - 1.
RW_INLINE vf vlog(vf x) {
  const vf y = x < 1.17549435e-38f ? x * 8388608.0f : x;  // subnormals: shifted up by 2^23
  const vi bits = as_int(y) - 0x3f3504f3;                 // relative to sqrt(1/2)
  const vi e = (bits >> 23) - (x < 1.17549435e-38f ? splat_int(23) : splat_int(0));
  const vf f = as_float((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, n = __builtin_convertvector(e, vf);
  vf p = 6.937292693e-02f * f - 1.184673562e-01f;
  p = p * f + 1.188879907e-01f;
  p = p * f - 1.237748697e-01f;
  p = p * f + 1.421711755e-01f;
  p = p * f - 1.666948366e-01f;
  p = p * f + 2.000218728e-01f;
  p = p * f - 2.499998385e-01f;
  p = p * f + 3.333331404e-01f;
  const vf low = f * f * f * p - n * 2.12194440e-4f - 0.5f * (f * f);
  vf r = f + low + n * 0.693359375f;
  const float inf = __builtin_inff();
  r = x == inf ? x : r;
  r = x == 0.0f ? splat(-inf) : r;
  return x >= 0.0f ? r : splat(__builtin_nanf(""));
}

}  // namespace rw::RW_ISA
