// The law that serving and tensor-parallel training stand on: with B packed, a row of c is the same to the bit whatever
// its batch (m, its place in it) and however many threads work. On a GPU when it is asked for.
#include "tests/kernels/gemm_backends.h"

namespace rw::test {
namespace {

Array product(const PanelKernel& kernel, Array& a, Array& b, Gemm g, int threads) {
  Array c(g.ct, g.m * g.n);
  g.c = c.data(), g.a = a.data(), g.b = b.data(), g.b_trans = Trans::yes;
  CHECK(run_gemm(kernel, g, Packed::yes, threads));
  return c;
}

void check_law(const GemmBackend& backend, DType t, int64_t n, int64_t k) {
  Array a(t, 513 * k, 1), b(t, n * k, 2);
  const Gemm g{.c = nullptr, .a = nullptr, .m = 512, .n = n, .k = k, .t = t, .ct = DType::f32, .fixed_order = true};
  const Array want = product(backend.kernel, a, b, g, 1);
  for (int threads : {1, 2, 3}) {
    for (int64_t m : {1, 2, 3, 5, 16, 17, 33, 64, 100, 511, 512, 513}) {
      Gemm part = g;
      part.m = m;
      const Array got = product(backend.kernel, a, b, part, threads);
      INFO(backend.name << " " << std::string(dtype_name(t)) << " n " << n << " k " << k << " m " << m << " threads "
                        << threads);
      const int64_t rows = std::min<int64_t>(m, 512);
      CHECK(std::memcmp(got.data(), want.data(), static_cast<size_t>(rows * n * 4)) == 0);
    }
  }
  // The last row alone: another place in the batch.
  Array last(t, k);
  for (int64_t i = 0; i < k; ++i) last.set(i, a[511 * k + i]);
  Gemm one = g;
  one.m = 1;
  const Array got = product(backend.kernel, last, b, one, 2);
  CHECK(std::memcmp(got.data(), static_cast<const float*>(want.data()) + 511 * n, static_cast<size_t>(n * 4)) == 0);
}

TEST_CASE("gemm: a row depends neither on its batch nor on the threads") {
  constexpr int64_t kShapes[][2] = {{128, 384}, {96, 3072}, {101, 333}, {33, 1000}, {7, 5}};
  for (DType t : kActivations) {
    for (const GemmBackend& backend : gemm_backends(t)) {
      for (const auto& s : kShapes) check_law(backend, t, s[0], s[1]);
    }
  }
}

#if !defined(RW_TEST_CUDA)
// What makes it so: each element is one sum in rising k, in f32. AVX2 and AVX-512 differ in nothing else.
TEST_CASE("gemm: avx2 and avx512 agree to the bit") {
  if (!isa_supported(Isa::avx512)) return;
  for (DType t : kActivations) {
    Array a(t, 50 * 900, 1), b(t, 70 * 900, 2);
    const Gemm g{.c = nullptr, .a = nullptr, .m = 50, .n = 70, .k = 900, .t = t, .ct = DType::f32};
    CHECK(product(gemm_kernel(Isa::avx2, t), a, b, g, 1).same_bits(product(gemm_kernel(Isa::avx512, t), a, b, g, 2)));
  }
}
#endif

}  // namespace
}  // namespace rw::test
