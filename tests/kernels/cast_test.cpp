#include "tests/kernels/array.h"

namespace rw::test {
namespace {

// The nearest value with `bits` bits of significand (the hidden one included) and exponents from min_exponent, ties to
// even, infinity above max: from the definition of rounding, in double.
double rounded(double x, int bits, int min_exponent, double max) {
  if (x == 0 || !std::isfinite(x)) return x;
  const int e = std::max(std::ilogb(x), min_exponent);
  const double unit = std::ldexp(1.0, e - bits + 1), y = std::nearbyint(x / unit) * unit;  // nearbyint: ties to even
  return std::abs(y) > max ? std::copysign(INFINITY, y) : y;
}
double as_bf16(double x) { return rounded(x, 8, -126, std::ldexp(255.0, 120)); }
double as_f16(double x) { return rounded(x, 11, -14, 65504); }

bool same(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

// Floats around every bf16 and f16 value and tie between two, of every exponent, both signs.
std::vector<float> probes() {
  std::vector<float> v;
  for (uint32_t high = 0; high < 0x10000; high += 3) {
    for (uint32_t low : {0u, 1u, 0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u, 0xf000u, 0xffffu}) {
      const uint32_t bits = high << 16 | low;
      float f;
      std::memcpy(&f, &bits, sizeof f);
      v.push_back(f);
    }
  }
  return v;
}

TEST_CASE("cast f32 to bf16 and f16 rounds to nearest even") {
  const std::vector<float> in = probes();
  const int64_t n = static_cast<int64_t>(in.size());
  Array x(DType::f32, n), b(DType::bf16, n), h(DType::f16, n);
  std::memcpy(x.data(), in.data(), in.size() * sizeof(float));
  each_table_and_type([&](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    ops.cast({.y = b.data(), .x = x.data(), .n = n, .yt = DType::bf16, .xt = DType::f32}, {2});
    ops.cast({.y = h.data(), .x = x.data(), .n = n, .yt = DType::f16, .xt = DType::f32}, {2});
    int64_t wrong_bf16 = 0, wrong_f16 = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(in[i]);
      // the AVX512-BF16 instruction takes subnormals for zeros
      const bool flushed = std::abs(v) < 0x1p-126 && b[i] == 0;
      wrong_bf16 += !same(b[i], as_bf16(v)) && !flushed;
      wrong_f16 += !same(h[i], as_f16(v));
    }
    CHECK(wrong_bf16 == 0);
    CHECK(wrong_f16 == 0);
  });
}

TEST_CASE("cast from bf16 and f16 is exact for all 65,536 values") {
  Array b(DType::bf16, 65536), h(DType::f16, 65536), from_b(DType::f32, 65536), from_h(DType::f32, 65536);
  for (int i = 0; i < 65536; ++i) {
    const uint16_t bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<char*>(b.data()) + 2 * i, &bits, 2);
    std::memcpy(static_cast<char*>(h.data()) + 2 * i, &bits, 2);
  }
  each_table_and_type([&](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    ops.cast({.y = from_b.data(), .x = b.data(), .n = 65536, .yt = DType::f32, .xt = DType::bf16}, {});
    ops.cast({.y = from_h.data(), .x = h.data(), .n = 65536, .yt = DType::f32, .xt = DType::f16}, {});
    int64_t wrong = 0;
    for (int i = 0; i < 65536; ++i) {
      const auto value = [&](int exponent_bits, int mantissa_bits) {
        const int bias = (1 << (exponent_bits - 1)) - 1, e = (i >> mantissa_bits) & ((1 << exponent_bits) - 1);
        const double m = std::ldexp(i & ((1 << mantissa_bits) - 1), -mantissa_bits);
        const double v =
            e == 2 * bias + 1 ? (m != 0 ? NAN : INFINITY) : std::ldexp(e ? 1 + m : m, e ? e - bias : 1 - bias);
        return i & 0x8000 ? -v : v;
      };
      wrong += !same(from_b[i], value(8, 7)) + !same(from_h[i], value(5, 10));
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("cast: every pair, odd sizes, canaries") {
  const DType types[] = {DType::f32, DType::bf16, DType::f16};
  each_table_and_type([&](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    for (DType xt : types) {
      for (DType yt : types) {
        for (int64_t n : {0, 1, 3, 15, 16, 17, 35, 40009}) {
          Array x(xt, n, 3, 2), y(yt, n), want(yt, n);
          for (int64_t i = 0; i < n; ++i) want.set(i, x[i]);
          ops.cast({.y = y.data(), .x = x.data(), .n = n, .yt = yt, .xt = xt}, {n % 2 ? 1 : 3});
          CHECK(y.same_bits(want));
          CHECK(y.canaries_alive());
        }
      }
    }
  });
}

}  // namespace
}  // namespace rw::test
