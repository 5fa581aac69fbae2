#include "tests/kernels/array.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

// Four accumulators of at least four lanes: the longest chain of additions over a row of c.
double chain(int64_t c) { return static_cast<double>(c) / 16 + 12; }

const int64_t kWidths[] = {1, 3, 4, 15, 16, 17, 63, 64, 65, 127, 769};

struct Case {
  NormKind kind;
  int64_t rows, c;
  bool add, bias;
};

void check_fwd(const Ops& ops, DType t, const Case& k) {
  CAPTURE(k.c);
  CAPTURE(k.rows);
  const bool layer = k.kind == NormKind::layer;
  const float eps = 1e-5f;
  Array x(t, k.rows * k.c, 1, 2), add(t, k.rows * k.c, 2), w(DType::f32, k.c, 3), b(DType::f32, k.c, 4);
  Array y(t, k.rows * k.c), sum(t, k.rows * k.c), mean(DType::f32, k.rows), rstd(DType::f32, k.rows);
  ops.norm_fwd({.y = y.data(),
                .mean = layer ? mean.f32() : nullptr,
                .rstd = rstd.f32(),
                .x = x.data(),
                .add = k.add ? add.data() : nullptr,
                .sum = k.add ? sum.data() : nullptr,
                .w = w.f32(),
                .b = k.bias ? b.f32() : nullptr,
                .rows = k.rows,
                .c = k.c,
                .eps = eps,
                .kind = k.kind,
                .t = t},
               {});
  if (k.add) {
    Array want(t, k.rows * k.c);
    for (int64_t i = 0; i < x.size(); ++i) want.set(i, static_cast<float>(x[i]) + static_cast<float>(add[i]));
    REQUIRE(sum.same_bits(want));
  }
  const Array& in = k.add ? sum : x;
  const double n = static_cast<double>(k.c), deep = chain(k.c);
  const ref::Norm want =
      ref::norm_fwd(in.values(), w.values(), k.bias ? b.values() : ref::Vec{}, k.c, static_cast<double>(eps), layer);
  for (int64_t r = 0; r < k.rows; ++r) {
    double abs_sum = 0;
    for (int64_t i = 0; i < k.c; ++i) abs_sum += std::abs(in[r * k.c + i]);
    const double mean_error = layer ? (deep + 1) * kU * abs_sum / n : 0;
    if (layer) check_near(mean[r], want.mean[r], mean_error, "mean", r);
    // square + eps is off by (deep + 4) roundings and, relatively, by the mean's error squared; 1/sqrt halves that
    const double rstd_error = want.rstd[r] * ((deep + 4) * kU + std::pow(mean_error * want.rstd[r], 2) + 3 * kU);
    check_near(rstd[r], want.rstd[r], rstd_error, "rstd", r);
    for (int64_t i = 0; i < k.c; ++i) {
      const int64_t at = r * k.c + i;
      const double dev = std::abs(in[at] - want.mean[r]), bi = k.bias ? std::abs(b[i]) : 0;
      const double bound = std::abs(w[i]) * ((mean_error + 3 * kU * dev) * want.rstd[r] * 1.01 + dev * rstd_error) +
                           kU * (std::abs(want.y[at]) + bi) + rounding_error(t, want.y[at]);
      check_near(y[at], want.y[at], bound, "y", at);
    }
  }
  for (const Array* a : {&y, &sum, &mean, &rstd}) CHECK(a->canaries_alive());
}

TEST_CASE("norm_fwd equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (NormKind kind : {NormKind::rms, NormKind::layer}) {
      for (int64_t c : kWidths) {
        const bool layer = kind == NormKind::layer;
        check_fwd(ops, t, {kind, 3, c, false, layer});
        check_fwd(ops, t, {kind, 5, c, true, false});
      }
      check_fwd(ops, t, {kind, 0, 8, true, false});
      // A row in f32, or two of them, make 48 KiB.
      check_fwd(ops, t, {kind, 2, 12288, true, true});
    }
  });
}

TEST_CASE("norm_fwd of a stored sum has the bits of the norm that made the sum") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (const int64_t c : {1, 7, 16, 24, 40, 64, 67, 96, 130, 256})
      for (const NormKind kind : {NormKind::rms, NormKind::layer}) {
        const int64_t rows = 5;
        Array x(t, rows * c, 1), add(t, rows * c, 2), w(DType::f32, c, 3), b(DType::f32, c, 4);
        Array sum(t, rows * c), y(t, rows * c), again(t, rows * c);
        Array mean(DType::f32, rows), rstd(DType::f32, rows), mean2(DType::f32, rows), rstd2(DType::f32, rows);
        const bool layer = kind == NormKind::layer;
        NormFwd a{.y = y.data(),
                  .mean = layer ? mean.f32() : nullptr,
                  .rstd = rstd.f32(),
                  .x = x.data(),
                  .add = add.data(),
                  .sum = sum.data(),
                  .w = w.f32(),
                  .b = layer ? b.f32() : nullptr,
                  .rows = rows,
                  .c = c,
                  .eps = 1e-6f,
                  .kind = kind,
                  .t = t};
        ops.norm_fwd(a, {});
        a.y = again.data(), a.mean = layer ? mean2.f32() : nullptr, a.rstd = rstd2.f32();
        a.x = sum.data(), a.add = nullptr, a.sum = nullptr;
        ops.norm_fwd(a, {});
        CHECK(y.same_bits(again));
        CHECK(rstd.same_bits(rstd2));
      }
  });
}

TEST_CASE("norm_fwd: sum may alias x or add") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t rows = 4, c = 67;
    Array x(t, rows * c, 1), add(t, rows * c, 2), w(DType::f32, c, 3), rstd(DType::f32, rows), y(t, rows * c);
    Array sum(t, rows * c), y2(t, rows * c), x2 = copy_of(x), add2 = copy_of(add);
    NormFwd a{.y = y.data(),
              .rstd = rstd.f32(),
              .x = x.data(),
              .add = add.data(),
              .sum = sum.data(),
              .w = w.f32(),
              .rows = rows,
              .c = c,
              .eps = 1e-6f,
              .kind = NormKind::rms,
              .t = t};
    ops.norm_fwd(a, {});
    a.y = y2.data(), a.x = x2.data(), a.sum = x2.data();
    ops.norm_fwd(a, {});
    CHECK(y.same_bits(y2));
    CHECK(x2.same_bits(sum));
    a.x = x.data(), a.add = add2.data(), a.sum = add2.data();
    ops.norm_fwd(a, {});
    CHECK(add2.same_bits(sum));
  });
}

TEST_CASE("the reference of norm_bwd agrees with finite differences") {
  for (bool layer : {false, true}) {
    const int64_t rows = 2, c = 7;
    const double eps = 1e-5;
    Array x(DType::f32, rows * c, 11), w(DType::f32, c, 12), b(DType::f32, c, 13), d_y(DType::f32, rows * c, 14);
    const auto loss = [&](const ref::Vec& xs, const ref::Vec& ws, const ref::Vec& bs) {
      const ref::Norm n = ref::norm_fwd(xs, ws, bs, c, eps, layer);
      double sum = 0;
      for (int64_t i = 0; i < rows * c; ++i) sum += n.y[i] * d_y[i];
      return sum;
    };
    const ref::Vec bs = layer ? b.values() : ref::Vec{};
    const ref::Norm n = ref::norm_fwd(x.values(), w.values(), bs, c, eps, layer);
    const ref::NormGrad g = ref::norm_bwd(d_y.values(), x.values(), w.values(), n.mean, n.rstd, c, layer);
    for (int64_t i = 0; i < rows * c; ++i) {
      const double fd = ref::slope([&](const ref::Vec& v) { return loss(v, w.values(), bs); }, x.values(), i);
      check_near(g.d_x[i], fd, 1e-8, "d_x", i);
    }
    for (int64_t i = 0; i < c; ++i) {
      const double fd = ref::slope([&](const ref::Vec& v) { return loss(x.values(), v, bs); }, w.values(), i);
      check_near(g.d_w[i], fd, 1e-8, "d_w", i);
      if (!layer) continue;
      const double fd_b = ref::slope([&](const ref::Vec& v) { return loss(x.values(), w.values(), v); }, bs, i);
      check_near(g.d_b[i], fd_b, 1e-8, "d_b", i);
    }
  }
}

struct BwdCase {
  NormKind kind;
  int64_t rows, c;
  bool residual;
  Write write;
};

void check_bwd(const Ops& ops, DType t, const BwdCase& k) {
  CAPTURE(k.c);
  CAPTURE(k.rows);
  const bool layer = k.kind == NormKind::layer;
  const int64_t n = k.rows * k.c;
  Array x(t, n, 1, 2), d_y(t, n, 2), d_res(t, n, 3), w(DType::f32, k.c, 4), d_x(t, n);
  Array d_w(DType::f32, k.c, 5), d_b(DType::f32, k.c, 6), mean(DType::f32, k.rows), rstd(DType::f32, k.rows);
  const ref::Norm stats = ref::norm_fwd(x.values(), w.values(), {}, k.c, 1e-3, layer);
  for (int64_t r = 0; r < k.rows; ++r) mean.set(r, stats.mean[r]), rstd.set(r, stats.rstd[r]);
  const ref::Vec w0 = d_w.values(), b0 = d_b.values();
  NormBwd a{.d_x = d_x.data(),
            .d_w = d_w.f32(),
            .d_b = layer ? d_b.f32() : nullptr,
            .d_y = d_y.data(),
            .x = x.data(),
            .d_res = k.residual ? d_res.data() : nullptr,
            .mean = layer ? mean.f32() : nullptr,
            .rstd = rstd.f32(),
            .w = w.f32(),
            .rows = k.rows,
            .c = k.c,
            .kind = k.kind,
            .t = t,
            .write = k.write};
  ops.norm_bwd(a, {});
  const ref::NormGrad want =
      ref::norm_bwd(d_y.values(), x.values(), w.values(), mean.values(), rstd.values(), k.c, layer);
  for (int64_t i = 0; i < n; ++i) {
    const double res = k.residual ? d_res[i] : 0, y = want.d_x[i] + res;
    const double bound = (chain(k.c) + 8) * kU * want.mag_x[i] + kU * std::abs(res) + rounding_error(t, y);
    check_near(d_x[i], y, bound, "d_x", i);
  }
  const bool keep = k.write == Write::accumulate;
  for (int64_t i = 0; i < k.c; ++i) {
    const double deep = (static_cast<double>(k.rows) / 4 + 9) * kU, w_was = keep ? w0[i] : 0, b_was = keep ? b0[i] : 0;
    check_near(d_w[i], want.d_w[i] + w_was, deep * (want.mag_w[i] + std::abs(w_was)), "d_w", i);
    if (layer) check_near(d_b[i], want.d_b[i] + b_was, deep * (want.mag_b[i] + std::abs(b_was)), "d_b", i);
  }
  for (const Array* arr : {&d_x, &d_w, &d_b}) CHECK(arr->canaries_alive());

  // the two halves apart, and d_x over d_y or d_res, give the same bits
  Array d_y2 = copy_of(d_y), d_res2 = copy_of(d_res), d_w2(DType::f32, k.c, 5), d_b2(DType::f32, k.c, 6);
  NormBwd half = a;
  half.d_x = nullptr, half.d_w = d_w2.f32(), half.d_b = layer ? d_b2.f32() : nullptr;
  ops.norm_bwd(half, {});
  CHECK(d_w2.same_bits(d_w));
  if (layer) CHECK(d_b2.same_bits(d_b));
  half.d_x = d_y2.data(), half.d_y = d_y2.data(), half.d_w = half.d_b = nullptr;
  ops.norm_bwd(half, {});
  CHECK(d_y2.same_bits(d_x));
  if (!k.residual) return;
  half.d_x = d_res2.data(), half.d_res = d_res2.data(), half.d_y = d_y.data();
  ops.norm_bwd(half, {});
  CHECK(d_res2.same_bits(d_x));
}

TEST_CASE("norm_bwd equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (NormKind kind : {NormKind::rms, NormKind::layer}) {
      for (int64_t c : kWidths) {
        check_bwd(ops, t, {kind, 5, c, true, Write::accumulate});
        check_bwd(ops, t, {kind, 7, c, false, Write::overwrite});
      }
      check_bwd(ops, t, {kind, 0, 9, false, Write::overwrite});
      check_bwd(ops, t, {kind, 2, 6144, true, Write::accumulate});
    }
  });
}

TEST_CASE("norms do not depend on the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t rows = 301, c = 515, n = rows * c;
    Array x(t, n, 1), add(t, n, 2), w(DType::f32, c, 3), b(DType::f32, c, 4), d_y0(t, n, 5);
    Array y1(t, n), d_x1(t, n), d_w1(DType::f32, c, 9), d_b1(DType::f32, c, 10);
    for (int threads : {1, 2, 3, 7}) {
      Array y(t, n), sum(t, n), mean(DType::f32, rows), rstd(DType::f32, rows);
      Array d_y = copy_of(d_y0), d_w(DType::f32, c, 9), d_b(DType::f32, c, 10);
      ops.norm_fwd({.y = y.data(),
                    .mean = mean.f32(),
                    .rstd = rstd.f32(),
                    .x = x.data(),
                    .add = add.data(),
                    .sum = sum.data(),
                    .w = w.f32(),
                    .b = b.f32(),
                    .rows = rows,
                    .c = c,
                    .eps = 1e-5f,
                    .kind = NormKind::layer,
                    .t = t},
                   {threads});
      ops.norm_bwd({.d_x = d_y.data(),
                    .d_w = d_w.f32(),
                    .d_b = d_b.f32(),
                    .d_y = d_y.data(),
                    .x = sum.data(),
                    .mean = mean.f32(),
                    .rstd = rstd.f32(),
                    .w = w.f32(),
                    .rows = rows,
                    .c = c,
                    .kind = NormKind::layer,
                    .t = t},
                   {threads});
      if (threads == 1) {
        y1 = std::move(y), d_x1 = std::move(d_y), d_w1 = std::move(d_w), d_b1 = std::move(d_b);
        continue;
      }
      CHECK(y.same_bits(y1));
      CHECK(d_y.same_bits(d_x1));
      CHECK(d_w.same_bits(d_w1));
      CHECK(d_b.same_bits(d_b1));
    }
  });
}

}  // namespace
}  // namespace rw::test
