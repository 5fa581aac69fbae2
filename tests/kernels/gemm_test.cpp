// Every implementation against the naive sum in double: all layouts, types and odd sizes.
#include <thread>

#include "tests/kernels/gemm_backends.h"

namespace rw::test {
namespace {

struct Case {
  int64_t m, n, k;
  int64_t pad = 0;  // elements between rows beyond the tight stride
  Trans a_trans = Trans::no, b_trans = Trans::no;
  DType t = DType::f32, ct = DType::f32;
  Write write = Write::overwrite;
  bool bias = false;
  Packed packed = Packed::no;
  int threads = 1;
};

struct Operands {
  Array a, b, c, bias;
  int64_t lda, ldb, ldc;
};

Operands make(const Case& q, double range) {
  const bool at = q.a_trans == Trans::yes, bt = q.b_trans == Trans::yes;
  const int64_t lda = (at ? q.m : q.k) + q.pad, ldb = (bt ? q.k : q.n) + q.pad, ldc = q.n + q.pad;
  return {Array(q.t, (at ? q.k : q.m) * lda, 1, range),
          Array(q.t, (bt ? q.n : q.k) * ldb, 2, range),
          Array(q.ct, q.m * ldc, 3, range),
          Array(DType::f32, q.n, 4, range),
          lda,
          ldb,
          ldc};
}

bool run(const PanelKernel& kernel, const Case& q, Operands& o) {
  return run_gemm(kernel,
                  {.c = o.c.data(),
                   .a = o.a.data(),
                   .b = o.b.data(),
                   .bias = q.bias ? o.bias.f32() : nullptr,
                   .m = q.m,
                   .n = q.n,
                   .k = q.k,
                   .lda = o.lda,
                   .ldb = o.ldb,
                   .ldc = o.ldc,
                   .a_trans = q.a_trans,
                   .b_trans = q.b_trans,
                   .t = q.t,
                   .ct = q.ct,
                   .write = q.write},
                  q.packed, q.threads);
}

// Error of a sum of k products in f32, in any order: k * u * sum|a b| (Higham, 3.1), one more u for each of bias and c,
// then the rounding to the type of c. Subnormal products may be flushed: 2^-126 each.
void check_case(const GemmBackend& backend, const Case& q, double range, double (*round)(double)) {
  INFO(backend.name << " (" << q.m << "," << q.n << "," << q.k << ") pad " << q.pad << " trans " << int(q.a_trans)
                    << int(q.b_trans) << " " << std::string(dtype_name(q.t)) << "->" << std::string(dtype_name(q.ct))
                    << " accumulate " << int(q.write) << " bias " << q.bias << " packed " << int(q.packed)
                    << " threads " << q.threads);
  Operands o = make(q, range);
  for (Array* x : {&o.a, &o.b, &o.c, &o.bias}) {
    for (int64_t i = 0; i < x->size(); ++i) x->set(i, round((*x)[i]));
  }
  const std::vector<double> a = o.a.values(), b = o.b.values(), before = o.c.values(), bias = o.bias.values();
  CHECK(run(backend.kernel, q, o));
  CHECK((o.a.canaries_alive() && o.b.canaries_alive() && o.c.canaries_alive() && o.bias.canaries_alive()));
  for (int64_t i = 0; i < q.m; ++i) {
    for (int64_t j = 0; j < o.ldc; ++j) {
      const double old = before[i * o.ldc + j];
      if (j >= q.n) {
        if (o.c[i * o.ldc + j] != old) FAIL_CHECK("wrote between the rows");
        continue;
      }
      double sum = 0, magnitude = 0;
      for (int64_t k = 0; k < q.k; ++k) {
        const double p = a[q.a_trans == Trans::yes ? k * o.lda + i : i * o.lda + k] *
                         b[q.b_trans == Trans::yes ? j * o.ldb + k : k * o.ldb + j];
        sum += p, magnitude += std::abs(p);
      }
      if (q.bias) sum += bias[j], magnitude += std::abs(bias[j]);
      if (q.write == Write::accumulate) sum += old, magnitude += std::abs(old);
      double bound = static_cast<double>(q.k + 2) * (kU * magnitude + 0x1p-126);
      if (q.ct != DType::f32 && q.bias && kRoundsBias) bound += rounding_error(q.ct, std::abs(bias[j]));
      if (q.ct != DType::f32) bound += rounding_error(q.ct, std::abs(sum) + bound);
      check_near(o.c[i * o.ldc + j], sum, range == 8 && q.ct == DType::f32 ? 0 : bound, "c", i * o.ldc + j);
    }
  }
}

double as_is(double x) { return x; }

constexpr DType kTypes[][2] = {{DType::f32, DType::f32},
                               {DType::bf16, DType::f32},
                               {DType::bf16, DType::bf16},
                               {DType::f16, DType::f32},
                               {DType::f16, DType::f16}};

TEST_CASE("gemm: all layouts and odd sizes equal the naive sum") {
  constexpr int64_t kShapes[][3] = {{1, 1, 1},    {1, 33, 7},    {2, 16, 32},  {13, 31, 33}, {14, 32, 31}, {15, 17, 64},
                                    {17, 65, 65}, {33, 47, 127}, {61, 101, 3}, {5, 7, 1031}, {70, 1, 19},  {1, 1, 600}};
  for (const auto& type : kTypes) {
    for (const GemmBackend& backend : gemm_backends(type[0])) {
      int turn = 0;
      for (const auto& s : kShapes) {
        for (int layout = 0; layout < 4; ++layout, ++turn) {
          for (Packed packed : {Packed::no, Packed::yes}) {
            const Write write = type[1] == DType::f32 && turn % 3 == 0 ? Write::accumulate : Write::overwrite;
            check_case(backend,
                       {.m = s[0],
                        .n = s[1],
                        .k = s[2],
                        .pad = turn % 2 ? 3 : 0,
                        .a_trans = layout & 1 ? Trans::yes : Trans::no,
                        .b_trans = layout & 2 ? Trans::yes : Trans::no,
                        .t = type[0],
                        .ct = type[1],
                        .write = write,
                        .bias = turn % 5 < 2,
                        .packed = packed,
                        .threads = 1 + turn % 3},
                       1, as_is);
          }
        }
      }
    }
  }
}

// Whole numbers up to 8 and k up to 1,200: every partial sum is below 2^24, so any order gives the same bits. These
// sizes cross the blocks of k, of rows and of columns.
TEST_CASE("gemm: whole numbers are exact across the cache blocks") {
  for (const auto& type : kTypes) {
    for (const GemmBackend& backend : gemm_backends(type[0])) {
      for (Packed packed : {Packed::no, Packed::yes}) {
        check_case(backend,
                   {.m = 301,
                    .n = 323,
                    .k = 1111,
                    .b_trans = Trans::yes,
                    .t = type[0],
                    .ct = type[1],
                    .packed = packed,
                    .threads = 2},
                   8, std::round);
        check_case(backend,
                   {.m = 67,
                    .n = 643,
                    .k = 1200,
                    .a_trans = Trans::yes,
                    .t = type[0],
                    .ct = type[1],
                    .packed = packed,
                    .threads = 3},
                   8, std::round);
      }
    }
  }
}

TEST_CASE("gemm: the empty sum is the bias, and nothing is no error") {
  for (const auto& type : kTypes) {
    for (const GemmBackend& backend : gemm_backends(type[0])) {
      for (Packed packed : {Packed::no, Packed::yes}) {
        for (bool bias : {false, true}) {
          Case q{.m = 5,
                 .n = 19,
                 .k = 0,
                 .pad = 2,
                 .t = type[0],
                 .ct = type[1],
                 .bias = bias,
                 .packed = packed,
                 .threads = 2};
          check_case(backend, q, 1, as_is);
          if (q.ct == DType::f32) {
            q.write = Write::accumulate;
            check_case(backend, q, 1, as_is);
          }
          check_case(backend, {.m = 0, .n = 5, .k = 7, .t = type[0], .ct = type[1], .packed = packed}, 1, as_is);
          check_case(backend, {.m = 5, .n = 0, .k = 7, .t = type[0], .ct = type[1], .packed = packed}, 1, as_is);
        }
      }
    }
  }
}

void check_converted_packing(DType t) {
  for (const GemmBackend& backend : gemm_backends(t)) {
    for (Trans trans : {Trans::no, Trans::yes}) {
      INFO(backend.name << " " << std::string(dtype_name(t)) << " trans " << int(trans));
      const int64_t n = 77, k = 131, ld = (trans == Trans::yes ? k : n) + 1, rows = trans == Trans::yes ? n : k;
      Array wide(DType::f32, rows * ld, 5), narrow(t, rows * ld);
      for (int64_t i = 0; i < wide.size(); ++i) narrow.set(i, wide[i]);
      GemmPack g{.packed = nullptr,
                 .b = wide.data(),
                 .n = n,
                 .k = k,
                 .ldb = ld,
                 .b_trans = trans,
                 .src_t = DType::f32,
                 .t = t};
      const int64_t bytes = panels_packed_bytes(backend.kernel, g);
      if (bytes == 0) continue;  // b serves as it is
      Aligned x(bytes), y(bytes);
      g.packed = x.data();
      panels_pack(backend.kernel, g, Stream{2});
      g.packed = y.data(), g.b = narrow.data(), g.src_t = t;
      panels_pack(backend.kernel, g, Stream{1});
      CHECK(std::memcmp(x.data(), y.data(), static_cast<size_t>(bytes)) == 0);
      CHECK((x.canaries_alive() && y.canaries_alive()));
    }
  }
}

TEST_CASE("gemm_pack: f32 converted while packing equals the narrow type packed") {
  for (DType t : {DType::bf16, DType::f16}) check_converted_packing(t);
}

// 2^10 x 2^6 = 2^16 is beyond half's largest number, 65504: loss scaling lives on it becoming infinity.
TEST_CASE("gemm: f16 overflows to infinity in c and while packing") {
  for (const GemmBackend& backend : gemm_backends(DType::f16)) {
    for (DType ct : {DType::f16, DType::f32}) {
      Array a(DType::f16, 2), b(DType::f16, 1), c(ct, 2);
      a.set(0, 1024), a.set(1, -1023.5), b.set(0, 64);
      CHECK(run_gemm(backend.kernel,
                     {.c = c.data(), .a = a.data(), .b = b.data(), .m = 2, .n = 1, .k = 1, .t = DType::f16, .ct = ct},
                     Packed::yes, 1));
      CHECK(c[0] == (ct == DType::f16 ? INFINITY : 65536));
      CHECK(c[1] == -65504);
    }
    Array wide(DType::f32, 2), a(DType::f16, 1), c(DType::f32, 2);
    wide.set(0, 65519), wide.set(1, 65520), a.set(0, 1);
    GemmPack pack{.packed = nullptr,
                  .b = wide.data(),
                  .n = 2,
                  .k = 1,
                  .b_trans = Trans::yes,
                  .src_t = DType::f32,
                  .t = DType::f16};
    Aligned packed(panels_packed_bytes(backend.kernel, pack));
    pack.packed = packed.data();
    panels_pack(backend.kernel, pack, {});
    Gemm g{.c = c.data(), .a = a.data(), .b_packed = packed.data(), .m = 1, .n = 2, .k = 1, .t = DType::f16};
    g.ct = DType::f32;
    Aligned workspace(panels_workspace(backend.kernel, g, {}));
    g.workspace = workspace.data();
    panels_gemm(backend.kernel, g, {});
    CHECK((c[0] == 65504 && c[1] == INFINITY));
  }
}

TEST_CASE("gemm: two callers at once") {
  for (const auto& type : kTypes) {
    for (const GemmBackend& backend : gemm_backends(type[0])) {
      const Case p{.m = 65, .n = 129, .k = 257, .t = type[0], .ct = type[1], .packed = Packed::yes};
      const Case q{.m = 33, .n = 70, .k = 511, .a_trans = Trans::yes, .t = type[0], .ct = type[1]};
      Operands want_p = make(p, 1), want_q = make(q, 1);
      run(backend.kernel, p, want_p);
      run(backend.kernel, q, want_q);
      bool same_p = true, same_q = true;
      auto repeat = [&](const Case& c, const Operands& want, bool& same) {
        for (int i = 0; i < 20; ++i) {
          Operands o = make(c, 1);
          same = run(backend.kernel, c, o) && o.c.same_bits(want.c) && same;
        }
      };
      std::thread first([&] { repeat(p, want_p, same_p); }), second([&] { repeat(q, want_q, same_q); });
      first.join(), second.join();
      INFO(backend.name);
      CHECK(same_p);
      CHECK(same_q);
    }
  }
}

}  // namespace
}  // namespace rw::test
