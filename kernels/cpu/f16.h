// IEEE half precision as a storage type. Conversion to it rounds to nearest even, overflows to infinity, keeps NaN.
// always_inline for the reason given in bf16.h.
#pragma once
#include <cstdint>

namespace rw {

struct f16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline float to_f32(f16 x) {
  const uint32_t sign = uint32_t{x.bits & 0x8000u} << 16, exponent = (x.bits >> 10) & 31u, mantissa = x.bits & 0x3ffu;
  if (exponent == 31) {  // infinity, NaN (quieted, as the hardware does)
    return __builtin_bit_cast(float, sign | 0x7f800000u | (mantissa << 13) | (mantissa ? 0x400000u : 0u));
  }
  if (exponent == 0) {  // zero, subnormal: mantissa * 2^-24, exact
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, static_cast<float>(mantissa) * 0x1p-24f) | sign);
  }
  return __builtin_bit_cast(float, sign | ((exponent + 112) << 23) | (mantissa << 13));
}

[[gnu::always_inline]] inline f16 to_f16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  uint32_t h;
  if (a > 0x7f800000u) {
    h = 0x7e00u | ((a >> 13) & 0x3ffu);
  } else if (a >= 0x477ff000u) {  // 65520 and up round to infinity
    h = 0x7c00u;
  } else if (a < 0x38800000u) {  // below 2^-14: adding 0.5 leaves round(a / 2^-24) in the mantissa
    h = __builtin_bit_cast(uint32_t, __builtin_bit_cast(float, a) + 0.5f) - 0x3f000000u;
  } else {
    h = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  }
  return {static_cast<uint16_t>(sign | h)};
}

}  // namespace rw
