// The packing half of the bf16 policies of attention (see attention_tiles.h): words of two bf16 for vdpbf16ps and
// tdpbf16ps, which agree on the layout. Needs AVX512-BF16.
#pragma once
#include "kernels/cpu/attention_tiles.h"

namespace rw::RW_ISA {
namespace {

struct Bf16Packing {
  using W = uint32_t;
  static constexpr int64_t kPair = 2, kPadD = 32;
  static constexpr int kExpTerms = 4;  // the result is rounded to 8 bits

  static void load_rows(uint32_t* dst, const bf16* src, int64_t ld, int64_t rows, int64_t padded_rows, int64_t d,
                        int64_t dp) {
    char* to = reinterpret_cast<char*>(dst);
    const int64_t bytes = d * 2, padded = dp * 2;
    for (int64_t r = 0; r < rows; ++r, to += padded) {
      prefetch_row(src, ld, min_of(r + kRowsAhead, rows - 1), d);
      __builtin_memcpy(to, src + r * ld, bytes);
      __builtin_memset(to + bytes, 0, padded - bytes);
    }
    __builtin_memset(to, 0, (padded_rows - rows) * padded);
  }

  static void pair_rows(uint32_t* dst, const uint32_t* src, int64_t rows, int64_t cols) {
    for (int64_t r = 0; r < rows; r += 2, dst += cols) {
      const uint32_t* even = src + r * (cols / 2);
      const uint32_t* odd = even + cols / 2;
      for (int64_t c = 0; c < cols / 2; c += 16) {
        const __m512i x = _mm512_loadu_si512(even + c), y = _mm512_loadu_si512(odd + c);
        const __m512i low = _mm512_mask_blend_epi16(0xaaaaaaaau, x, _mm512_slli_epi32(y, 16));   // even columns
        const __m512i high = _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(x, 16), y);  // odd columns
        const vf l = __builtin_bit_cast(vf, low), h = __builtin_bit_cast(vf, high);
        const vf first = interleave_low(l, h), second = interleave_high(l, h);
        __builtin_memcpy(dst + 2 * c, &first, 64);
        __builtin_memcpy(dst + 2 * c + 16, &second, 64);
      }
    }
  }

  RW_INLINE static void put_b(uint32_t* b, int64_t ldb, int64_t row, int64_t lane, vf x0, vf x1) {
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    const __m512i both = __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(x1, x0));
    _mm512_storeu_si512(b + row / 2 * ldb + lane, _mm512_permutexvar_epi16(order, both));
  }
  RW_INLINE static void put_a(uint32_t* a, int64_t lda, int64_t row, int64_t lane, vf x0, vf x1) {
    const __m512i both = __builtin_bit_cast(__m512i, _mm512_cvtne2ps_pbh(x1, x0));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a + row * lda + lane / 2), _mm512_castsi512_si256(both));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(a + (row + 1) * lda + lane / 2), _mm512_extracti64x4_epi64(both, 1));
  }
};

}  // namespace
}  // namespace rw::RW_ISA
