// From numbers to scaled whole numbers. Compiled once per instruction set (see simd.h).
#pragma once
#include "kernels/cpu/lanes.h"

namespace rw::RW_ISA {

typedef int8_t vb __attribute__((vector_size(kW)));

// The largest magnitude of n elements, NaN when one is not finite; 0 below 2^-100, of which a reciprocal may overflow.
template <class T>
RW_INLINE float largest_magnitude(const T* x, int64_t n) {
  vf max{}, bad{};
  each_vector(0, n, [&](int64_t i, auto part) RW_LAMBDA {
    const vf v = load(x + i, part);
    max = vmax(as_float(as_int(v) & 0x7fffffff), max);
    bad += v * 0.0f;
  });
  const float m = hmax(max);
  return (m < 0x1p-100f ? 0 : m) + hsum(bad);
}

// The nearest whole numbers, halves to even, of |x| < 2^22.
RW_INLINE vi round_to_int(vf x) { return as_int(x + 12582912.0f) - 0x4b400000; }  // + 1.5 * 2^23: it is in the low bits

}  // namespace rw::RW_ISA
