// bfloat16: the upper half of an f32. Conversion to it rounds to nearest even; a NaN stays a (quiet) NaN.
// Everything is always_inline: files built for several instruction sets include this, and an out-of-line copy of one
// of them could otherwise be linked into code that runs on an older CPU.
#pragma once
#include <cstdint>

namespace rw {

struct bf16 {
  uint16_t bits;
};

[[gnu::always_inline]] inline float to_f32(bf16 x) { return __builtin_bit_cast(float, uint32_t{x.bits} << 16); }
[[gnu::always_inline]] inline float to_f32(float x) { return x; }

[[gnu::always_inline]] inline bf16 to_bf16(float x) {
  const uint32_t u = __builtin_bit_cast(uint32_t, x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

}  // namespace rw
