// The search for values that are not finite: by their bits, the exponent's being all ones.
#include <cstddef>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/f16.h"
#include "kernels/operands.h"

namespace rw {
namespace {

// The bits of a type: those of its exponent, and of everything but the sign.
template <class U>
struct Bits {
  U exponent, magnitude;
};

template <class U>
U bits_at(const void* p, int64_t i) {
  U u;
  __builtin_memcpy(&u, static_cast<const char*>(p) + i * static_cast<int64_t>(sizeof(U)), sizeof u);
  return u;
}

// The first bad one of n, or n.
template <class U>
int64_t first_of(const void* p, int64_t n, Bits<U> b, Operand::Low minus_infinity) {
  constexpr int64_t kBlock = 256;  // looked over without a branch
  const U sign = static_cast<U>(~b.magnitude);
  const bool legal = minus_infinity == Operand::Low::legal;
  const auto is_bad = [&](U u) {
    return ((u & b.exponent) == b.exponent) & !(legal & (u == static_cast<U>(sign | b.exponent)));
  };
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t end = i + kBlock < n ? i + kBlock : n;
    bool any = false;
    for (int64_t j = i; j < end; ++j) any |= is_bad(bits_at<U>(p, j));
    for (int64_t j = i; any && j < end; ++j) {
      if (is_bad(bits_at<U>(p, j))) return j;
    }
  }
  return n;
}

constexpr Bits<uint32_t> kF32{0x7f800000u, 0x7fffffffu};
constexpr Bits<uint16_t> kBf16{0x7f80u, 0x7fffu}, kF16{0x7c00u, 0x7fffu};
constexpr Bits<uint64_t> kF64{0x7ff0000000000000u, 0x7fffffffffffffffu};

template <class U>
const char* kind(const void* p, int64_t i, Bits<U> b) {
  return (bits_at<U>(p, i) & b.magnitude) > b.exponent ? "NaN" : "inf";
}

template <class U>
BadValue search(const Operand& o, Bits<U> b) {
  const int64_t ld = o.ld == 0 ? o.cols : o.ld;
  for (int64_t r = 0; r < o.rows; ++r) {
    const int64_t row = o.at.empty() ? r : o.at[static_cast<std::size_t>(r)];
    const char* p = static_cast<const char*>(o.data) + row * ld * static_cast<int64_t>(sizeof(U));
    const int64_t c = first_of<U>(p, o.cols, b, o.minus_infinity);
    if (c < o.cols) return {row, c, kind(p, c, b)};
  }
  return {};
}

// Values of which another type makes infinity.
BadValue search_narrowed(const Operand& o) {
  const int64_t ld = o.ld == 0 ? o.cols : o.ld;
  for (int64_t r = 0; r < o.rows; ++r) {
    for (int64_t c = 0; c < o.cols; ++c) {
      const int64_t i = r * ld + c;
      const float x = o.t == DType::f32    ? bits_at<float>(o.data, i)
                      : o.t == DType::bf16 ? to_f32(bits_at<bf16>(o.data, i))
                                           : to_f32(bits_at<f16>(o.data, i));
      const float y = o.held_as == DType::f32 ? x : o.held_as == DType::bf16 ? to_f32(to_bf16(x)) : to_f32(to_f16(x));
      if (y != y) return {r, c, "NaN"};
      if (__builtin_isinf(y)) return {r, c, "inf"};
    }
  }
  return {};
}

}  // namespace

BadValue first_bad(const Operand& o) {
  if (!o.data) return {};
  if (o.held_as != o.t) return search_narrowed(o);
  switch (o.t) {
    case DType::f32: return search(o, kF32);
    case DType::bf16: return search(o, kBf16);
    case DType::f16: return search(o, kF16);
    case DType::f64: return search(o, kF64);
    default: return {};
  }
}

}  // namespace rw
