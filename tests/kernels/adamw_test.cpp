#include "tests/kernels/array.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

TEST_CASE("adamw equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    for (int64_t n : {0, 1, 15, 16, 17, 1009}) {
      for (int64_t step : {1, 2, 1000}) {
        Array p(DType::f32, n, 1), m(DType::f32, n, 2, 0.1), v(DType::f32, n, 3, 0.01), g(DType::f32, n, 4);
        for (int64_t i = 0; i < n; ++i) v.set(i, std::abs(v[i]));
        const Array p0 = copy_of(p), m0 = copy_of(m), v0 = copy_of(v);
        const AdamW a{.p = p.f32(),
                      .m = m.f32(),
                      .v = v.f32(),
                      .g = g.f32(),
                      .n = n,
                      .lr = 1e-2f,
                      .beta1 = 0.9f,
                      .beta2 = 0.95f,
                      .eps = 1e-6f,
                      .weight_decay = 0.1f,
                      .grad_scale = 0.5f,
                      .step = step};
        ops.adamw(a, {});
        const auto d = [](float x) { return static_cast<double>(x); };
        for (int64_t i = 0; i < n; ++i) {
          const ref::Adam was{p0[i], m0[i], v0[i]};
          const ref::Adam want = ref::adamw(
              was, g[i], {d(a.lr), d(a.beta1), d(a.beta2), d(a.eps), d(a.weight_decay), d(a.grad_scale), step});
          const double m_mag = std::abs(was.m) + std::abs(g[i]) * 0.05, v_error = 5 * kU * want.v;
          check_near(m[i], want.m, 4 * kU * m_mag, "m", i);
          check_near(v[i], want.v, v_error, "v", i);
          // The update is linear in m; the root halves v's relative error; six roundings more.
          const double ratio = std::abs(want.p - was.p * (1 - d(a.lr) * d(a.weight_decay))) / std::abs(want.m);
          check_near(
              p[i], want.p,
              ratio * (4 * kU * m_mag + 12 * kU * std::abs(want.m)) + 3 * kU * std::abs(was.p) + kU * std::abs(want.p),
              "p", i);
        }
        for (const Array* arr : {&p, &m, &v}) CHECK(arr->canaries_alive());
      }
    }
  });
}

TEST_CASE("adamw moves a parameter whose gradient is zero by its decay alone") {
  each_table_and_type([](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    Array p(DType::f32, 40, 1), m(DType::f32, 40), v(DType::f32, 40), g(DType::f32, 40);
    const Array p0 = copy_of(p);
    for (int64_t i = 0; i < 40; ++i) m.set(i, 0), v.set(i, 0), g.set(i, 0);
    ops.adamw({.p = p.f32(),
               .m = m.f32(),
               .v = v.f32(),
               .g = g.f32(),
               .n = 40,
               .lr = 0.5f,
               .beta1 = 0.9f,
               .beta2 = 0.99f,
               .eps = 1e-8f,
               .weight_decay = 0.5f,
               .grad_scale = 1,
               .step = 1},
              {});
    for (int64_t i = 0; i < 40; ++i) CHECK(p[i] == doctest::Approx(0.75 * p0[i]).epsilon(2 * kU));
  });
}

TEST_CASE("sum_squares: partials by block, the same for every number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    for (int64_t n : {0, 1, 31, 32, 33, 1000, 70001}) {
      for (int64_t block : {1, 37, 64, 4096, 100000}) {
        if (n / block > 2000) continue;
        const int64_t blocks = (n + block - 1) / block;
        Array x(DType::f32, n, 5);
        std::vector<double> one(blocks + 1, -7.0), three(blocks + 1, -7.0);
        ops.sum_squares({.partial = one.data(), .x = x.f32(), .n = n, .block = block}, {1});
        ops.sum_squares({.partial = three.data(), .x = x.f32(), .n = n, .block = block}, {3});
        CHECK(one == three);
        CHECK(one[blocks] == -7.0);
        for (int64_t b = 0; b < blocks; ++b) {
          long double want = 0;
          for (int64_t i = b * block; i < std::min(n, (b + 1) * block); ++i) {
            want += static_cast<long double>(x[i]) * static_cast<long double>(x[i]);
          }
          const double w = static_cast<double>(want);
          check_near(one[b], w, static_cast<double>(block) * 0x1p-53 * w, "partial", b);
        }
      }
    }
  });
}

TEST_CASE("adamw does not depend on the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    if (t != DType::f32) return;
    const int64_t n = 100003;
    Array g(DType::f32, n, 4), p1(DType::f32, n), v1(DType::f32, n);
    for (int threads : {1, 2, 5}) {
      Array p(DType::f32, n, 1), m(DType::f32, n, 2), v(DType::f32, n, 3);
      for (int64_t i = 0; i < n; ++i) v.set(i, std::abs(v[i]));
      ops.adamw({.p = p.f32(),
                 .m = m.f32(),
                 .v = v.f32(),
                 .g = g.f32(),
                 .n = n,
                 .lr = 0.5f,
                 .beta1 = 0.9f,
                 .beta2 = 0.99f,
                 .eps = 1e-8f,
                 .weight_decay = 0.1f,
                 .grad_scale = 1,
                 .step = 3},
                {threads});
      if (threads == 1) {
        p1 = std::move(p), v1 = std::move(v);
        continue;
      }
      CHECK(p.same_bits(p1));
      CHECK(v.same_bits(v1));
    }
  });
}

}  // namespace
}  // namespace rw::test
