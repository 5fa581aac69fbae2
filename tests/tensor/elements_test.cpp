#include "libcore/tensor/elements.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace rw;

namespace {

// The value of a small float from its definition: (-1)^s * 1.m * 2^(e-bias), 0.m * 2^(1-bias) for e = 0.
double small_float_value(uint16_t h, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int e = (h >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int m = h & ((1 << mantissa_bits) - 1);
  const double sign = (h & 0x8000) != 0 ? -1 : 1;
  if (e == (1 << exponent_bits) - 1) return m != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (e == 0) return sign * std::ldexp(m, 1 - bias - mantissa_bits);
  return sign * std::ldexp((1 << mantissa_bits) + m, e - bias - mantissa_bits);
}

struct Format {
  DType dtype;
  int exponent_bits, mantissa_bits;
};
const Format kFormats[] = {{DType::f16, 5, 10}, {DType::bf16, 8, 7}};

}  // namespace

TEST_CASE("every bf16 and f16 converts to f32 by its definition and back to itself") {
  for (const Format& f : kFormats) {
    for (int i = 0; i < 65536; ++i) {
      const uint16_t h = static_cast<uint16_t>(i);
      float x;
      convert_elements(&h, f.dtype, &x, DType::f32, 1);
      const double expected = small_float_value(h, f.exponent_bits, f.mantissa_bits);
      uint16_t back;
      convert_elements(&x, DType::f32, &back, f.dtype, 1);
      if (std::isnan(expected)) {
        float again;
        convert_elements(&back, f.dtype, &again, DType::f32, 1);
        REQUIRE(std::isnan(x));
        REQUIRE(std::isnan(again));
      } else {
        REQUIRE(static_cast<double>(x) == expected);
        REQUIRE(std::signbit(x) == std::signbit(expected));
        REQUIRE(back == h);
      }
    }
  }
}

TEST_CASE("f32 rounds to the nearest bf16 and f16, ties to even") {
  std::mt19937 random(7);
  for (const Format& f : kFormats) {
    for (int i = 0; i < 200000; ++i) {
      uint32_t bits = static_cast<uint32_t>(random());
      if (f.dtype == DType::f16 && i % 4 != 0)
        bits = (bits & 0x87ffffff) + 0x30000000;                                  // where f16 lives, subnormals too
      if (i % 3 == 0) bits = (bits & ~0xfffu) | ((bits & 1) != 0 ? 0 : 0x1000u);  // many exact ties
      const float x = std::bit_cast<float>(bits);
      if (std::isnan(x)) continue;
      uint16_t h;
      convert_elements(&x, DType::f32, &h, f.dtype, 1);
      REQUIRE((h >> 15) == static_cast<int>(std::signbit(x)));
      // Magnitudes of small floats grow with their bits, so the neighbours of h are h - 1 and h + 1; infinity stands
      // for the value that would follow the largest.
      const int magnitude = h & 0x7fff, infinity = ((1 << f.exponent_bits) - 1) << f.mantissa_bits;
      const auto value = [&](int m) {
        return m == infinity ? std::ldexp(2.0, (1 << (f.exponent_bits - 1)) - 1)
                             : small_float_value(static_cast<uint16_t>(m), f.exponent_bits, f.mantissa_bits);
      };
      const double a = std::abs(static_cast<double>(x));
      if (std::isinf(a)) {
        REQUIRE(magnitude == infinity);
        continue;
      }
      REQUIRE(magnitude <= infinity);
      const double error = std::abs(value(magnitude) - a);
      if (magnitude > 0) {
        const double below = std::abs(value(magnitude - 1) - a);
        REQUIRE((error < below || (error == below && magnitude % 2 == 0)));
      }
      if (magnitude < infinity) {
        const double above = std::abs(value(magnitude + 1) - a);
        REQUIRE((error < above || (error == above && magnitude % 2 == 0)));
      }
    }
  }
}

TEST_CASE("f64 and i64 become f32; other pairs do not read") {
  const double d[] = {1.0 / 3.0, -1e300, 0.0};
  float x[3];
  convert_elements(d, DType::f64, x, DType::f32, 3);
  CHECK(x[0] == 1.0f / 3.0f);
  CHECK(x[1] == -std::numeric_limits<float>::infinity());
  const int64_t n[] = {-7, 123456, 0};
  convert_elements(n, DType::i64, x, DType::f32, 3);
  CHECK(x[0] == -7.0f);
  CHECK(x[1] == 123456.0f);
  CHECK(can_read_as(DType::i64, DType::i64));
  CHECK_FALSE(can_read_as(DType::f32, DType::f16));
  CHECK_FALSE(can_read_as(DType::f16, DType::bf16));
}

TEST_CASE("transpose at odd sizes, from an unaligned place, leaves what lies behind alone") {
  for (const int64_t rows : {0, 1, 31, 32, 33, 67}) {
    for (const int64_t cols : {1, 5, 32, 65}) {
      std::vector<float> src(static_cast<size_t>(rows * cols));
      for (size_t i = 0; i < src.size(); ++i) src[i] = static_cast<float>(i);
      std::vector<float> dst(src.size() + 1, -5.0f);
      transpose_elements(src.data(), rows, cols, 4, dst.data());
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t c = 0; c < cols; ++c)
          REQUIRE(dst[static_cast<size_t>(c * rows + r)] == static_cast<float>(r * cols + c));
      }
      CHECK(dst.back() == -5.0f);
    }
  }
}

TEST_CASE("a part of a box is cut out, converted, from bytes at an odd address") {
  const Box src{{2, 3}, {4, 5}}, dst{{3, 0}, {2, 9}}, part{{3, 4}, {2, 3}};
  std::vector<char> bytes(1 + 4 * 5 * 2);
  for (int i = 0; i < 20; ++i) {
    const float x = static_cast<float>(i) * 0.5f;
    convert_elements(&x, DType::f32, bytes.data() + 1 + 2 * i, DType::bf16, 1);
  }
  std::vector<float> out(18, -1.0f);
  copy_part(part, {bytes.data() + 1, DType::bf16, src}, out.data(), DType::f32, dst);
  for (int64_t r = 3; r < 5; ++r) {
    for (int64_t c = 0; c < 9; ++c) {
      const bool inside = c >= 4 && c < 7;
      const float expected = inside ? static_cast<float>((r - 2) * 5 + (c - 3)) * 0.5f : -1.0f;
      CHECK(out[static_cast<size_t>((r - 3) * 9 + c)] == expected);
    }
  }
}

TEST_CASE("sizes that do not fit are seen") {
  CHECK(checked_bytes({3, 5}, DType::f32) == 60);
  CHECK(checked_bytes({}, DType::i64) == 8);
  CHECK(checked_bytes({int64_t{1} << 31, int64_t{1} << 31}, DType::f32) == -1);
  CHECK(checked_bytes({-1}, DType::f32) == -1);
}
