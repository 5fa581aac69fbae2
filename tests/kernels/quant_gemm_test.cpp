// Products with weights of 8 and 4 bits, on every instruction set, against the naive sum in double over the weights
// that quant_unpack says were kept.
#include <limits>

#include "tests/kernels/gemm_backends.h"
#if defined(RW_TEST_CUDA)
#include "tests/cuda/cuda_quant.h"
#else
#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/quant_block.h"
#endif

namespace rw::test {
namespace {

struct QuantBackend {
  std::string name;
  const Ops& ops;
  void (*gemm)(const QuantGemm&, Stream);
};

#if defined(RW_TEST_CUDA)
constexpr bool kFewer = true;  // runs that would differ in the number of threads alone
std::vector<QuantBackend> quant_backends() {
  static const Ops ops = quant_ops_in_each_order();
  return {{"cuda", ops, ops.quant_gemm}};
}
#else
constexpr bool kFewer = false;
std::vector<QuantBackend> quant_backends() {
  std::vector<QuantBackend> all;
  for (Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    const Ops& ops = cpu_ops(isa_name(isa));
    all.push_back({isa_name(isa), ops, ops.quant_gemm});
    if (isa == Isa::avx512_bf16 && amx_int8_ready())
      all.push_back({"avx512_bf16 without tiles", ops, cpu_avx512_bf16::quant_gemm_without_tiles});
  }
  return all;
}
#endif

struct Format {
  QuantBits bits;
  int64_t group;
  int64_t block() const { return bits == QuantBits::int8 ? group : 4 * group; }  // of a row of a
};
constexpr Format kFormats[] = {{QuantBits::int8, 128}, {QuantBits::int8, 64}, {QuantBits::int8, 512},
                               {QuantBits::int4, 32},  {QuantBits::int4, 96}, {QuantBits::int4, 128}};

// b(n,k) of a row stride, packed, and what was kept of it.
struct Weights {
  Format f;
  int64_t n, k;
  Aligned packed;
  Array kept;

  Weights(const Ops& ops, Format format, const Array& b, int64_t rows, int64_t cols, int64_t ld, int threads = 2)
      : f(format), n(rows), k(cols), packed(bytes(ops)), kept(DType::f32, rows * ld, 77) {
    ops.quant_pack({.packed = packed.data(),
                    .b = static_cast<const float*>(b.data()),
                    .n = n,
                    .k = k,
                    .ldb = ld,
                    .bits = f.bits,
                    .group = f.group},
                   Stream{threads});
    ops.quant_unpack(
        {.b = kept.f32(), .packed = packed.data(), .n = n, .k = k, .ldb = ld, .bits = f.bits, .group = f.group},
        Stream{threads});
    CHECK((packed.canaries_alive() && kept.canaries_alive() && b.canaries_alive()));
  }
  int64_t bytes(const Ops& ops) const {
    return ops.quant_packed_bytes({.packed = nullptr, .b = nullptr, .n = n, .k = k, .bits = f.bits, .group = f.group},
                                  {});
  }
};

// g without what `w` and a workspace made here give it.
void multiply(const QuantBackend& backend, QuantGemm g, Weights& w, int threads) {
  g.b_packed = w.packed.data();
  g.n = w.n, g.k = w.k, g.bits = w.f.bits, g.group = w.f.group;
  Aligned workspace(backend.ops.quant_gemm_workspace(g, Stream{threads}));
  g.workspace = workspace.data();
  backend.gemm(g, Stream{threads});
  CHECK((workspace.canaries_alive() && w.packed.canaries_alive()));
}

struct Case {
  int64_t m, n, k;
  int64_t pad = 0;
  DType t = DType::f32, ct = DType::f32;
  bool bias = false;
  int threads = 1;
};

// An element of a is off by half of its scale, which is its block's largest over 32639, and by what dividing by that
// rounds away (2 u of up to 32639 steps). A block's sum becomes f32 (u) and is multiplied twice and added (3 u), the
// sum over blocks errs by a u for each of them, the bias and the type of c come last.
void check_case(const QuantBackend& backend, Format f, const Case& q) {
  INFO(backend.name << " int" << (f.bits == QuantBits::int8 ? 8 : 4) << " by " << f.group << " (" << q.m << "," << q.n
                    << "," << q.k << ") " << std::string(dtype_name(q.t)) << "->" << std::string(dtype_name(q.ct))
                    << " pad " << q.pad << " bias " << q.bias << " threads " << q.threads);
  const int64_t lda = q.k + q.pad, ldb = q.k + q.pad, ldc = q.n + q.pad;
  Array a(q.t, q.m * lda, 1), b(DType::f32, q.n * ldb, 2), c(q.ct, q.m * ldc, 3), bias(DType::f32, q.n, 4);
  const std::vector<double> before = c.values();
  Weights w(backend.ops, f, b, q.n, q.k, ldb, q.threads);
  multiply(backend,
           {.c = c.data(),
            .a = a.data(),
            .b_packed = nullptr,
            .bias = q.bias ? bias.f32() : nullptr,
            .m = q.m,
            .n = q.n,
            .k = q.k,
            .lda = lda,
            .ldc = ldc,
            .bits = f.bits,
            .group = f.group,
            .t = q.t,
            .ct = q.ct},
           w, q.threads);
  CHECK((a.canaries_alive() && c.canaries_alive() && bias.canaries_alive()));
  const std::vector<double> va = a.values(), vb = w.kept.values();
  for (int64_t i = 0; i < q.m; ++i) {
    for (int64_t j = 0; j < ldc; ++j) {
      if (j >= q.n) {
        if (c[i * ldc + j] != before[static_cast<size_t>(i * ldc + j)]) FAIL_CHECK("wrote between the rows");
        continue;
      }
      double sum = 0, magnitude = 0, rounding = 0;
      for (int64_t k0 = 0; k0 < q.k; k0 += f.block()) {
        double largest = 0, weights = 0;
        for (int64_t k = k0; k < std::min(q.k, k0 + f.block()); ++k) {
          const double x = va[static_cast<size_t>(i * lda + k)], y = vb[static_cast<size_t>(j * ldb + k)];
          sum += x * y, magnitude += std::abs(x * y), weights += std::abs(y), largest = std::max(largest, std::abs(x));
        }
        rounding += (0.5 + 4 * kU * 32639) * largest / 32639 * weights;
      }
      magnitude += rounding;
      if (q.bias) sum += bias[j], magnitude += std::abs(bias[j]);
      double bound = rounding + static_cast<double>(q.k / f.block() + 6) * kU * magnitude;
      if (q.ct != DType::f32) bound += rounding_error(q.ct, std::abs(sum) + bound);
      check_near(c[i * ldc + j], sum, bound, "c", i * ldc + j);
    }
  }
}

TEST_CASE("quant_gemm: all formats, types and odd sizes equal the naive sum over the weights that were kept") {
  constexpr int64_t kShapes[][3] = {{1, 1, 1},    {1, 17, 64},  {2, 33, 127}, {3, 32, 129},  {4, 65, 600},
                                    {5, 31, 513}, {16, 32, 32}, {17, 1, 96},  {31, 47, 257}, {70, 131, 70}};
  for (const QuantBackend& backend : quant_backends()) {
    for (const Format& f : kFormats) {
      int turn = 0;
      for (const auto& s : kShapes) {
        const DType t = kActivations[turn % 3];
        check_case(backend, f,
                   {.m = s[0],
                    .n = s[1],
                    .k = s[2],
                    .pad = turn % 2 ? 3 : 0,
                    .t = t,
                    .ct = turn % 4 < 2 ? DType::f32 : t,
                    .bias = turn % 5 < 2,
                    .threads = 1 + turn % 3});
        ++turn;
      }
    }
  }
}

// More rows than a block of them, more panels than go together, more of k than stays in the cache.
TEST_CASE("quant_gemm: across the cache blocks") {
  for (const QuantBackend& backend : quant_backends()) {
    if (backend.name == "scalar") continue;  // the same code as avx2, slowly
    for (const Format& f : {kFormats[0], kFormats[3]})
      check_case(backend, f,
                 {.m = kFewer ? 131 : 259, .n = 163, .k = 1300, .t = DType::bf16, .ct = DType::bf16, .threads = 2});
  }
}

TEST_CASE("quant_gemm: the empty sum is the bias, and nothing is no error") {
  for (const QuantBackend& backend : quant_backends()) {
    for (const Format& f : {kFormats[0], kFormats[3]}) {
      for (bool bias : {false, true}) check_case(backend, f, {.m = 5, .n = 19, .k = 0, .bias = bias, .threads = 2});
      check_case(backend, f, {.m = 0, .n = 5, .k = 7});
      check_case(backend, f, {.m = 5, .n = 0, .k = 7});
    }
  }
}

// The law that serving stands on: a row is the same to the bit whatever its batch and however many threads work.
TEST_CASE("quant_gemm: a row depends neither on its batch nor on the threads nor on the unit that multiplies") {
  for (const Format& f : kFormats) {
    for (DType t : {DType::f32, DType::bf16}) {
      const int64_t n = kFewer ? 43 : 75, k = kFewer ? 600 : 1000, m = kFewer ? 98 : 290;
      Array a(t, m * k, 1), b(DType::f32, n * k, 2);
      std::vector<float> units;  // of avx512_bf16, which has two
      for (const QuantBackend& backend : quant_backends()) {
        Weights w(backend.ops, f, b, n, k, k);
        const auto rows = [&](int64_t first, int64_t count, int threads) {
          Array part(t, count * k), c(DType::f32, count * n);
          for (int64_t i = 0; i < count * k; ++i) part.set(i, a[first * k + i]);
          multiply(backend, {.c = c.data(), .a = part.data(), .m = count, .t = t, .ct = DType::f32}, w, threads);
          return std::vector<float>(c.f32(), c.f32() + count * n);
        };
        const std::vector<float> all = rows(0, m, 2);
        REQUIRE(all.front() != all.back());
        for (int64_t count : kFewer ? std::vector<int64_t>{1, 2, 4, 5, 17, 33, 65}
                                    : std::vector<int64_t>{1, 2, 3, 4, 5, 15, 16, 17, 33, 257}) {
          for (int64_t first : {int64_t{0}, m - count}) {
            for (int threads : kFewer ? std::vector<int>{1} : std::vector<int>{1, 3}) {
              INFO(backend.name << " by " << f.group << " rows " << first << " + " << count << " threads " << threads);
              const std::vector<float> some = rows(first, count, threads);
              CHECK(std::equal(some.begin(), some.end(), all.begin() + first * n));
            }
          }
        }
#if !defined(RW_TEST_CUDA)
        if (&backend.ops != &cpu_ops("avx512_bf16")) continue;
        if (units.empty()) units = all;
        CHECK(units == all);
#endif
      }
    }
  }
}

// int8: half a step of a scale that is the group's largest over 127, rounded up to 8 bits.
TEST_CASE("quant_pack: int8 is off by half a step, zeros stay, the sign stays") {
  const Format f{QuantBits::int8, 64};
  const int64_t n = 37, k = 200;
  Array b(DType::f32, n * k, 3, 0.1);
  for (int64_t i = 0; i < k; ++i) b.set(5 * k + i, 0);
  for (const QuantBackend& backend : quant_backends()) {
    Weights w(backend.ops, f, b, n, k, k);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t k0 = 0; k0 < k; k0 += f.group) {
        double largest = 0;
        for (int64_t i = k0; i < std::min(k, k0 + f.group); ++i) largest = std::max(largest, std::abs(b[j * k + i]));
        for (int64_t i = k0; i < std::min(k, k0 + f.group); ++i)
          check_near(w.kept[j * k + i], b[j * k + i], 0.5001 * largest / 127 * (1 + 0x1p-7), "b", j * k + i);
      }
    }
  }
}

// Weights that are what int4 can say (shared 2^-9, own scales up to 15, -8 or 7 among each group) come back as they
// were.
TEST_CASE("quant_pack: what int4 can say is kept exactly") {
  const Format f{QuantBits::int4, 32};
  const int64_t n = 35, k = 256;
  Array b(DType::f32, n * k);
  const int own[] = {15, 9, 4, 12, 11, 15, 3, 14};
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < k; ++i) {
      const int64_t q = i % 32 == j % 32 ? (j % 2 ? 7 : -8) : (i * 7 + j * 5) % 16 - 8;
      b.set(j * k + i, 0x1p-9 * own[i / 32] * static_cast<double>(q));
    }
  }
  for (const QuantBackend& backend : quant_backends()) {
    INFO(backend.name);
    Weights w(backend.ops, f, b, n, k, k);
    CHECK(w.kept.values() == b.values());
  }
}

// Plain rounding: a scale for each group that just holds its largest element, max / 7.
TEST_CASE("quant_pack: int4 loses less than plain rounding does") {
  const Format f{QuantBits::int4, 32};
  const int64_t n = 64, k = 512;
  Array u(DType::f32, 3 * n * k, 9, 0.02), b(DType::f32, n * k);
  for (int64_t i = 0; i < n * k; ++i) b.set(i, u[3 * i] + u[3 * i + 1] + u[3 * i + 2]);  // nearly normal
  double plain = 0;
  for (int64_t i = 0; i < n * k; i += f.group) {
    double largest = 0;
    for (int64_t j = i; j < i + f.group; ++j) largest = std::max(largest, std::abs(b[j]));
    for (int64_t j = i; j < i + f.group; ++j) {
      const double d = b[j] - std::round(b[j] / largest * 7) * largest / 7;
      plain += d * d;
    }
  }
  for (const QuantBackend& backend : quant_backends()) {
    INFO(backend.name);
    Weights w(backend.ops, f, b, n, k, k);
    double ours = 0;
    for (int64_t i = 0; i < n * k; ++i) ours += (w.kept[i] - b[i]) * (w.kept[i] - b[i]);
    CHECK(ours < plain);
  }
}

TEST_CASE("quant_gemm: what is not finite in a row or a weight shows there and nowhere else") {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()};
  for (const QuantBackend& backend : quant_backends()) {
    for (const Format& f : kFormats) {
      for (float x : bad) {
        const int64_t m = 6, n = 40, k = 300;
        Array a(DType::f32, m * k, 1), b(DType::f32, n * k, 2), c(DType::f32, m * n);
        a.set(2 * k + 7, static_cast<double>(x));
        b.set(33 * k + 299, static_cast<double>(x));
        Weights w(backend.ops, f, b, n, k, k);
        multiply(backend, {.c = c.data(), .a = a.data(), .m = m, .t = DType::f32, .ct = DType::f32}, w, 2);
        int64_t wrong = 0;
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) wrong += std::isfinite(c[i * n + j]) != (i != 2 && j != 33);
        }
        CHECK(wrong == 0);
      }
    }
  }
}

}  // namespace
}  // namespace rw::test
