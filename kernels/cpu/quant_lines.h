// Scales and lines of packed weights (quant_layout.h). Compiled once per instruction set (see simd.h).
#pragma once
#include "kernels/cpu/quant_layout.h"
#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {
namespace {

typedef uint8_t vline __attribute__((vector_size(64)));
typedef uint16_t vline16 __attribute__((vector_size(64)));

// Four groups of int4: what a byte's halves are multiplied with, and what is added then, for 16 columns.
struct OwnScales {
  vline16 factor[4];
  vline offset[4];
};
RW_INLINE OwnScales own_scales(const char* head, int64_t half) {
  typedef uint8_t v16b __attribute__((vector_size(16)));
  typedef uint32_t v16u __attribute__((vector_size(64)));
  OwnScales s;
#pragma GCC unroll 4
  for (int64_t g = 0; g < 4; ++g) {
    v16b bytes;
    __builtin_memcpy(&bytes, head + 64 + 16 * g, 16);
    const v16u own = __builtin_convertvector(half == 0 ? bytes & 15 : bytes >> 4, v16u);
    v16u offset = 128 - 8 * own;
    offset |= offset << 8;
    s.factor[g] = __builtin_bit_cast(vline16, own | own << 16);
    s.offset[g] = __builtin_bit_cast(vline, offset | offset << 16);
  }
  return s;
}

// The lines of `steps` steps of int4 as lines of int8: q * own + 128. Both bytes of a 16-bit word are multiplied at
// once: (q + 8) * own < 256, so that nothing is carried from one to the other.
RW_INLINE void widen_lines(char* dst, const char* src, const OwnScales& s, int64_t group, int64_t steps) {
  for (int64_t half_step = 0; half_step < 2 * steps; ++half_step) {
    const int64_t g = half_step * (kQuantStep / 2) / group;
    const vline16 factor = s.factor[g];
    const vline offset = s.offset[g];
    for (int64_t i = 0; i < kQuantLinesPerStep / 4; ++i, src += 64, dst += 128) {
      vline both;
      __builtin_memcpy(&both, src, 64);
      const vline16 low = __builtin_bit_cast(vline16, both & 15),
                    high = __builtin_bit_cast(vline16, both) >> 4 & 0x0f0f;
      const vline a = __builtin_bit_cast(vline, low * factor) + offset;
      const vline b = __builtin_bit_cast(vline, high * factor) + offset;
      __builtin_memcpy(dst, &a, 64);
      __builtin_memcpy(dst + 64, &b, 64);
    }
  }
}

// The scales of 16 columns of a block, in kW lanes from column c.
RW_INLINE vf column_scales(const char* head, int64_t half, int64_t c) {
  return load(reinterpret_cast<const bf16*>(head) + 16 * half + c);
}

// c + (sum * row) * column: how a group's sum of whole numbers enters c, on every way through the product.
RW_INLINE vf add_group(vf c, vi sum, vf row, vf column) {
#if defined(__AVX512F__)
  return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(__builtin_bit_cast(__m512i, sum)), row), column, c);
#else
  return c + __builtin_convertvector(sum, vf) * row * column;
#endif
}

}  // namespace
}  // namespace rw::RW_ISA
