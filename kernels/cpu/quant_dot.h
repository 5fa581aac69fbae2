// Products of whole numbers: lines of weights (quant_layout.h) with up to 4 rows of one tile of a (quant_rows.h), exact
// modulo 2^32. Compiled once per instruction set (see simd.h).
#pragma once
#include "kernels/cpu/quant_rows.h"

namespace rw::RW_ISA {
namespace {

// Some rows of a tile: their bytes in its first step, and what lies between steps.
struct DotRows {
  const char* a;
  int64_t step_bytes;
  int64_t lower;  // bytes from the upper to the lower bytes of a row
};

#if defined(__AVX512VNNI__)

// sums[r][c] = sum of weights * a, for kRows rows. Few rows need more sums at a time to hide the latency of vpdpbusd.
template <int kRows>
RW_INLINE void dot_rows(int32_t (&sums)[4][16], const DotRows& x, const char* lines, int64_t steps) {
  constexpr int kSets = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  __m512i upper[kSets][kRows], lower[kSets][kRows];
#pragma GCC unroll 4
  for (int s = 0; s < kSets; ++s) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) upper[s][r] = lower[s][r] = _mm512_setzero_si512();
  }
  const char* a = x.a;
  for (int64_t step = 0; step < steps; ++step, a += x.step_bytes) {
#pragma GCC unroll 16
    for (int i = 0; i < kQuantLinesPerStep; ++i, lines += 64) {
      const __m512i w = _mm512_loadu_si512(lines);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        int32_t hi, lo;
        __builtin_memcpy(&hi, a + r * kQuantStep + 4 * i, 4);
        __builtin_memcpy(&lo, a + x.lower + r * kQuantStep + 4 * i, 4);
        upper[i % kSets][r] = _mm512_dpbusd_epi32(upper[i % kSets][r], w, _mm512_set1_epi32(hi));
        lower[i % kSets][r] = _mm512_dpbusd_epi32(lower[i % kSets][r], w, _mm512_set1_epi32(lo));
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    __m512i hi = upper[0][r], lo = lower[0][r];
#pragma GCC unroll 4
    for (int s = 1; s < kSets; ++s) hi = _mm512_add_epi32(hi, upper[s][r]), lo = _mm512_add_epi32(lo, lower[s][r]);
    _mm512_storeu_si512(sums[r], _mm512_add_epi32(_mm512_slli_epi32(hi, 8), lo));
  }
}

#else

// A register of 8-bit weights as 16-bit numbers, multiplied with four 16-bit numbers over and over, neighbours added.
typedef int16_t vw __attribute__((vector_size(kW * 4)));
RW_INLINE vi multiply_add(const char* weights, vw a) {
#if defined(__AVX512F__)
  const __m512i w = _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights)));
  return __builtin_bit_cast(vi, _mm512_madd_epi16(w, __builtin_bit_cast(__m512i, a)));
#elif defined(__AVX2__)
  const __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(weights)));
  return __builtin_bit_cast(vi, _mm256_madd_epi16(w, __builtin_bit_cast(__m256i, a)));
#elif defined(__SSE2__)
  const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(weights));
  const __m128i w = _mm_unpacklo_epi8(b, _mm_setzero_si128());
  return __builtin_bit_cast(vi, _mm_madd_epi16(w, __builtin_bit_cast(__m128i, a)));
#else
  vi sums;
  for (int64_t i = 0; i < kW; ++i)
    sums[i] = static_cast<uint8_t>(weights[2 * i]) * a[2 * i] + static_cast<uint8_t>(weights[2 * i + 1]) * a[2 * i + 1];
  return sums;
#endif
}

template <int kRows>
RW_INLINE void dot_rows(int32_t (&sums)[4][16], const DotRows& x, const char* lines, int64_t steps) {
  constexpr int64_t kParts = 64 / (2 * kW);  // registers to a line, two sums to a column
  vi acc[kRows][kParts] = {};
  const char* a = x.a;
  for (int64_t step = 0; step < steps; ++step, a += x.step_bytes) {
    for (int64_t i = 0; i < kQuantLinesPerStep; ++i, lines += 64) {
      for (int r = 0; r < kRows; ++r) {
        int64_t four;
        __builtin_memcpy(&four, a + r * 2 * kQuantStep + 8 * i, 8);
        typedef int64_t vl __attribute__((vector_size(kW * 4)));
        const vw times = __builtin_bit_cast(vw, four - vl{});
        for (int64_t p = 0; p < kParts; ++p) acc[r][p] += multiply_add(lines + 2 * kW * p, times);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < 16; ++c) {
      const vi& part = acc[r][2 * c / kW];
      sums[r][c] =
          static_cast<int32_t>(static_cast<uint32_t>(part[2 * c % kW]) + static_cast<uint32_t>(part[2 * c % kW + 1]));
    }
  }
}

#endif

RW_INLINE void dot_rows(int64_t rows, int32_t (&sums)[4][16], const DotRows& x, const char* lines, int64_t steps) {
  switch (rows) {
    case 1: return dot_rows<1>(sums, x, lines, steps);
    case 2: return dot_rows<2>(sums, x, lines, steps);
    case 3: return dot_rows<3>(sums, x, lines, steps);
    default: return dot_rows<4>(sums, x, lines, steps);
  }
}

}  // namespace
}  // namespace rw::RW_ISA
