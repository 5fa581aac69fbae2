// Packing bf16 for the instructions that multiply pairs of neighbours in k (vdpbf16ps, tdpbf16ps): 16 lines by 32 k at
// a time, as 16 registers of 16 pairs. Compiled once per instruction set with AVX512-BF16 (see simd.h).
#pragma once
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {

constexpr int64_t kLines = 16, kStep = 32;

RW_INLINE __mmask16 first16(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u);
}
RW_INLINE __mmask32 first32(int64_t n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1u; }

// n elements of a line, at most 32, the rest zero.
RW_INLINE __m512i load_line(const bf16* p, int64_t n) { return _mm512_maskz_loadu_epi16(first32(n), p); }
RW_INLINE __m512i load_line(const float* p, int64_t n) {
  const __m512 lo = _mm512_maskz_loadu_ps(first16(n), p);
  const __m512 hi = n > 16 ? _mm512_maskz_loadu_ps(first16(n - 16), p + 16) : _mm512_setzero_ps();
  return __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(hi, lo));
}

// n neighbours, at most 16, of x, each paired with the one of y below it (no y: zero).
RW_INLINE __m512i widen_bits(const bf16* p, int64_t n) {
  return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first16(n), p));
}
RW_INLINE __m512i widen_bits(const float* p, int64_t n) {
  return _mm512_cvtepu16_epi32(__builtin_bit_cast(__m256i, narrow(_mm512_maskz_loadu_ps(first16(n), p))));
}
template <class S>
RW_INLINE __m512i load_pairs(const S* x, const S* y, int64_t n) {
  const __m512i lo = widen_bits(x, n);
  return y ? _mm512_or_si512(lo, _mm512_slli_epi32(widen_bits(y, n), 16)) : lo;
}

// 16 x 16 transposition of 32-bit elements: 2 x 2 and 4 x 4 within 128-bit lanes, then the lanes.
RW_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {  // r[4g + i] holds, in lane l, column 4l + i of rows 4g .. 4g + 3
    const __m512i p = _mm512_shuffle_i32x4(r[i], r[4 + i], 0x88), q = _mm512_shuffle_i32x4(r[i], r[4 + i], 0xdd);
    const __m512i u = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0x88);
    const __m512i v = _mm512_shuffle_i32x4(r[8 + i], r[12 + i], 0xdd);
    t[i] = _mm512_shuffle_i32x4(p, u, 0x88);
    t[4 + i] = _mm512_shuffle_i32x4(q, v, 0x88);
    t[8 + i] = _mm512_shuffle_i32x4(p, u, 0xdd);
    t[12 + i] = _mm512_shuffle_i32x4(q, v, 0xdd);
  }
  for (int i = 0; i < 16; ++i) r[i] = t[i];
}

// What a register of the block holds: the 32 k of one line, or one pair of k of 16 lines.
enum class Registers : uint8_t { lines, pairs };

// Lines first .. first + 16 of the panel and 32 k from `k`, zero beyond the panel's lines and k.
template <class S, Registers kWant>
RW_INLINE void load_block(const PackPanel& p, int64_t first, int64_t k, __m512i (&r)[16]) {
  const S* src = static_cast<const S*>(p.src);
  const int64_t lines = p.lines - first, n = p.k - k;
  const __m512i zero = _mm512_setzero_si512();
  if (p.axis == KAxis::k_inner) {
    for (int i = 0; i < 16; ++i) r[i] = i < lines ? load_line(src + (first + i) * p.ld + k, n) : zero;
    if constexpr (kWant == Registers::pairs) transpose(r);
  } else {
    for (int i = 0; i < 16; ++i) {
      const S* x = src + (k + 2 * i) * p.ld + first;
      r[i] = lines > 0 && 2 * i < n ? load_pairs(x, 2 * i + 1 < n ? x + p.ld : nullptr, lines) : zero;
    }
    if constexpr (kWant == Registers::lines) transpose(r);
  }
}

}  // namespace rw::RW_ISA
