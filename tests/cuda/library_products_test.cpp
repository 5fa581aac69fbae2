// What cuBLASLt may do with a product that the naive twin does not by itself: add in an order that comes from the
// shape, read a bias 16 bytes at a time, promise a GELU that it has not.
#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/device_sizes.h"
#include "tests/cuda/cuda_tables.h"

// After the above: the toolkit's names.
#include "kernels/simt/cublaslt.cuh"

using namespace rw;

namespace {

class Ways {
 public:
  explicit Ways(const simt::CublasLtWays& ways) { simt::set_cublaslt_ways(ways); }
  ~Ways() { simt::set_cublaslt_ways({}); }
  Ways(const Ways&) = delete;
  Ways& operator=(const Ways&) = delete;
};

struct alignas(64) Line {
  char bytes[64];
};
using Room = std::vector<Line>;
Room room(int64_t bytes) { return Room(static_cast<size_t>(bytes / 64 + 2)); }

// f32 and bf16 are read of the same numbers.
Room numbers(DType t, int64_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = uniform(random);
  Room out = room(n * 4);
  test::waited_cuda_ops().cast({.y = out.data(), .x = values.data(), .n = n, .yt = t, .xt = DType::f32}, {});
  return out;
}

constexpr int64_t kMost = 70, kN = 24, kK = 331;

struct Operands {
  DType t;
  Room a = numbers(t, kMost*kK, 1), b = numbers(t, kN*kK, 2), bias = numbers(DType::f32, kN + 1, 3);
  Room workspace = room(kGemmLibraryBytes + 4096);

  // The rows of c, and of its GELU behind them where `has_gelu`.
  std::vector<char> rows(int64_t m, bool is_fixed, bool has_gelu, DType ct) {
    const int64_t bytes = m * kN * dtype_bytes(ct);
    Room c = room(bytes), act = room(bytes);
    Gemm g{.c = c.data(),
           .a = a.data(),
           .b_packed = b.data(),
           .bias = reinterpret_cast<const float*>(bias.data()),
           .m = m,
           .n = kN,
           .k = kK,
           .t = t,
           .ct = ct,
           .fixed_order = is_fixed,
           .workspace = workspace.data()};
    if (has_gelu) g.gelu = act.data();
    test::waited_cuda_ops().gemm(g, {});
    std::vector<char> out(static_cast<size_t>(bytes));
    std::memcpy(out.data(), has_gelu ? act.data() : c.data(), out.size());
    return out;
  }
};

bool begins_with(const std::vector<char>& all, const std::vector<char>& part) {
  return part.size() <= all.size() && std::memcmp(all.data(), part.data(), part.size()) == 0;
}

}  // namespace

TEST_CASE("library products: with fixed_order a row does not depend on how many there are") {
  const Ways ways({.adds_by_shape = true});
  for (const DType t : {DType::f32, DType::bf16})
    for (const bool has_gelu : {false, true}) {
      CAPTURE(has_gelu);
      Operands o{t};
      const std::vector<char> all = o.rows(kMost, true, has_gelu, t);
      for (const int64_t m : {1, 2, 3, 4, 5, 6, 17, 63, 64, 65}) {
        CAPTURE(m);
        CHECK(begins_with(all, o.rows(m, true, has_gelu, t)));
      }
    }
  // Without it they may: so the test sees what it is about.
  Operands o{DType::f32};
  int other = 0;
  for (const int64_t m : {1, 2, 3, 4})
    if (!begins_with(o.rows(kMost, false, false, DType::f32), o.rows(m, false, false, DType::f32))) ++other;
  CHECK(other > 0);
}

TEST_CASE("library products: a bias in f32 may lie at any address") {
  Operands o{DType::f32};
  const std::vector<char> want = o.rows(5, false, false, DType::f32);
  Room moved = room(kN * 4 + 64);
  for (const size_t past : {4, 8, 12, 20}) {
    std::memcpy(reinterpret_cast<char*>(moved.data()) + past, o.bias.data(), kN * 4);
    Room c = room(5 * kN * 4);
    test::waited_cuda_ops().gemm({.c = c.data(),
                                  .a = o.a.data(),
                                  .b_packed = o.b.data(),
                                  .bias = reinterpret_cast<const float*>(reinterpret_cast<char*>(moved.data()) + past),
                                  .m = 5,
                                  .n = kN,
                                  .k = kK,
                                  .t = DType::f32,
                                  .ct = DType::f32,
                                  .workspace = o.workspace.data()},
                                 {});
    CHECK(std::memcmp(c.data(), want.data(), want.size()) == 0);
  }
}

TEST_CASE("library products: a GELU that the library lists and refuses is made in parts, from then on at once") {
  Operands o{DType::bf16};
  const std::vector<char> want = o.rows(7, false, true, DType::f32);  // it has none, and says so
  const Ways ways({.promises_gelu = true});
  const auto made = [&](int64_t m, bool is_fixed) {
    const int64_t before = simt::cublaslt_counts().asked_algorithms;
    const std::vector<char> got = o.rows(m, is_fixed, true, DType::f32);
    CHECK(begins_with(m > 7 ? got : want, m > 7 ? want : got));
    return simt::cublaslt_counts().asked_algorithms - before;
  };
  CHECK(made(9, false) > 0);
  CHECK(made(9, false) == 0);
  CHECK(made(11, true) > 0);
  CHECK(made(11, true) == 0);
}
