#include "libcore/tensor/tensor_stats.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "libcore/tensor/element_stream.h"
#include "tests/ckpt/saves.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;

namespace {

// Straight from the definitions, in long double.
TensorStats naive(const std::vector<double>& x) {
  TensorStats s;
  long double sum = 0;
  std::vector<double> finite;
  for (const double v : x) {
    ++s.n;
    if (std::isnan(v)) ++s.n_nan;
    else if (std::isinf(v)) ++s.n_inf;
    else finite.push_back(v);
    s.n_zero += v == 0;
  }
  if (finite.empty()) return s;
  s.min = s.max = finite[0];
  for (const double v : finite) {
    s.min = std::min(s.min, v), s.max = std::max(s.max, v);
    sum += v;
  }
  const long double mean = sum / static_cast<long double>(finite.size());
  long double squares = 0;
  for (const double v : finite) squares += (v - mean) * (v - mean);
  s.mean = static_cast<double>(mean);
  s.std = static_cast<double>(std::sqrt(squares / static_cast<long double>(finite.size())));
  return s;
}

void check_equal(const TensorStats& found, const TensorStats& expected) {
  CHECK(found.n == expected.n);
  CHECK(found.n_nan == expected.n_nan);
  CHECK(found.n_inf == expected.n_inf);
  CHECK(found.n_zero == expected.n_zero);
  CHECK(found.min == expected.min);
  CHECK(found.max == expected.max);
  // A sum of n terms in f64 is off by at most n eps of the sum of their magnitudes.
  const double scale = std::max(std::fabs(expected.min), std::fabs(expected.max));
  const double bound = static_cast<double>(expected.n) * 0x1p-52 * scale;
  CHECK(std::fabs(found.mean - expected.mean) <= bound);
  CHECK(std::fabs(found.std - expected.std) <= bound);
}

template <typename T>
void check_stats(DType dtype, const Shape& shape, const std::vector<T>& numbers) {
  const ScratchDir dir;
  const Checkpoint checkpoint(saves::tensors(dir.path(), 1, {saves::values<T>("t", dtype, shape, numbers)}));
  int64_t read = 0;
  const TensorStats found = tensor_stats(checkpoint, checkpoint.tensors()[0], [&](int64_t bytes) { read += bytes; });
  CHECK(read == static_cast<int64_t>(numbers.size() * sizeof(T)));
  check_equal(found, naive({numbers.begin(), numbers.end()}));
}

}  // namespace

TEST_CASE("statistics of tensors are those of their definitions") {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  check_stats<float>(DType::f32, {0, 4}, {});
  check_stats<float>(DType::f32, {}, {-2.5f});
  check_stats<float>(DType::f32, {1}, {nan});
  check_stats<float>(DType::f32, {7}, {nan, inf, -inf, 0.0f, -0.0f, 3.0f, -1.0f});
  check_stats<int64_t>(DType::i64, {3}, {-5, 0, 1'000'000'007});
  check_stats<int32_t>(DType::i32, {3}, {-5, 0, 7});
  check_stats<uint16_t>(DType::u16, {2}, {0, 65535});
  check_stats<uint8_t>(DType::u8, {3}, {0, 255, 7});
  check_stats<double>(DType::f64, {3}, {1e100, -1e100, 2});

  // More than one part, in both directions, and a mean far from zero, where the textbook formula cancels.
  std::mt19937 random(2);
  std::normal_distribution<float> noise(0.0f, 0.01f);
  std::vector<float> many(static_cast<size_t>(3 * kStreamElements + 17));
  for (float& v : many) v = 4096.0f + noise(random);
  many[5] = nan, many[many.size() - 1] = -inf, many[kStreamElements] = 0;
  check_stats<float>(DType::f32, {static_cast<int64_t>(many.size())}, many);
  check_stats<float>(DType::f32, {1, static_cast<int64_t>(many.size()), 1}, many);
  many.resize(static_cast<size_t>(1031) * 521);
  check_stats<float>(DType::f32, {1031, 521}, many);
}

TEST_CASE("statistics of 16-bit types") {
  const ScratchDir dir;
  // 1, -2, 0.5, infinity, NaN by their bits.
  const Checkpoint checkpoint(
      saves::tensors(dir.path(), 1,
                     {saves::values<uint16_t>("bf16", DType::bf16, {5}, {0x3f80, 0xc000, 0x3f00, 0x7f80, 0x7fc0}),
                      saves::values<uint16_t>("f16", DType::f16, {5}, {0x3c00, 0xc000, 0x3800, 0x7c00, 0x7e00})}));
  for (const TensorInfo& t : checkpoint.tensors()) {
    INFO(t.name);
    check_equal(tensor_stats(checkpoint, t, nullptr), naive({1, -2, 0.5, INFINITY, NAN}));
  }
}

TEST_CASE("parts of a tensor follow each other and cover it once") {
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    Shape shape;
    for (size_t d = random() % 5; d > 0; --d) shape.push_back(static_cast<int64_t>(random() % 6));
    const int64_t most = 1 + static_cast<int64_t>(random() % 20);
    int64_t next = 0;  // the element that comes next in row-major order
    for_each_part(shape, most, [&](const Box& box) {
      REQUIRE(contains(shape, box));
      REQUIRE(box.size() > 0);
      REQUIRE(box.size() <= most);
      for_each_run(box, whole(shape), box, [&](int64_t at, int64_t, int64_t n) {
        REQUIRE(at == next);
        next += n;
      });
    });
    REQUIRE(next == n_elements(shape));
  }
}
