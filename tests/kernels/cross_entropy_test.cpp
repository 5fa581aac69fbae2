#include "tests/kernels/array.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

TEST_CASE("the reference of cross_entropy's gradient agrees with finite differences") {
  Array z(DType::f32, 9, 1, 3);
  const ref::Vec g = ref::cross_entropy_grad(z.values(), 4);
  for (int64_t i = 0; i < 9; ++i) {
    const double fd = ref::slope([](const ref::Vec& v) { return ref::cross_entropy(v, 4); }, z.values(), i);
    check_near(g[i], fd, 1e-9, "d_logits", i);
  }
}

struct Case {
  int64_t rows, v, ld;
  double range;
};

void check_case(const Ops& ops, DType t, const Case& k) {
  CAPTURE(k.v);
  CAPTURE(k.range);
  const float d_scale = 0.37f;
  Array z(t, k.rows * k.ld, 1, k.range), loss(DType::f32, k.rows), loss2(DType::f32, k.rows), d = copy_of(z);
  std::vector<int32_t> target;
  for (int64_t r = 0; r < k.rows; ++r)
    target.push_back(r % 4 == 3 ? -100 : static_cast<int32_t>((r * 31 + k.v - 1) % k.v));
  CrossEntropy a{.loss = loss.f32(),
                 .logits = d.data(),
                 .target = target.data(),
                 .rows = k.rows,
                 .v = k.v,
                 .ld = k.ld == k.v ? 0 : k.ld,
                 .d_scale = 0,
                 .t = t};
  ops.cross_entropy(a, {});
  REQUIRE(d.same_bits(z));  // only the loss was asked for
  a.d_scale = d_scale, a.loss = loss2.f32();
  ops.cross_entropy(a, {});
  CHECK(loss2.same_bits(loss));
  for (int64_t r = 0; r < k.rows; ++r) {
    ref::Vec row;
    for (int64_t i = 0; i < k.v; ++i) row.push_back(z[r * k.ld + i]);
    if (target[r] < 0) {
      CHECK(loss[r] == 0);
      for (int64_t i = 0; i < k.v; ++i) CHECK(d[r * k.ld + i] == 0);
    } else {
      const double want = ref::cross_entropy(row, target[r]);
      // Each term: e^x 2 ulp, x - max rounded once (|x - max| <= 2 range) when added and once for each raised maximum;
      // the sum runs over v / 32 additions in a lane's two accumulators and 8 more.
      const double deep = static_cast<double>(k.v) / 32 + 12, terms = (deep + 4 + 4 * k.range) * kU;
      check_near(loss[r], want, terms + kU * std::abs(want), "loss", r);
      const ref::Vec g = ref::cross_entropy_grad(row, target[r]);
      for (int64_t i = 0; i < k.v; ++i) {
        const double y = g[i] * static_cast<double>(d_scale), p = i == target[r] ? g[i] + 1 : g[i];
        check_near(d[r * k.ld + i], y,
                   static_cast<double>(d_scale) * p * (terms + 4 * kU) + 1.01 * unit_roundoff(t) * std::abs(y) + 1e-37,
                   "d_logits", r * k.ld + i);
      }
    }
    for (int64_t i = k.v; i < k.ld; ++i) CHECK(d[r * k.ld + i] == z[r * k.ld + i]);
  }
  CHECK(d.canaries_alive());
  CHECK(loss.canaries_alive());
}

TEST_CASE("cross_entropy equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t v : {1, 2, 4, 15, 16, 17, 31, 127, 128, 129, 257, 1009, 5003}) {
      check_case(ops, t, {5, v, v, 4});
      check_case(ops, t, {4, v, v + 3, 30});
    }
    check_case(ops, t, {0, 7, 7, 1});
  });
}

TEST_CASE("cross_entropy: masked logits count nothing, bad ones show in the loss") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 300;
    Array z(t, 3 * v, 1, 2), loss(DType::f32, 3);
    for (int64_t i = 5; i < v; ++i) z.set(i, -INFINITY);  // row 0: five logits are left
    z.set(v + 200, NAN);
    z.set(2 * v + 7, INFINITY);
    const ref::Vec rest = {z[0], z[1], z[2], z[3], z[4]};
    const int32_t target[] = {2, 3, 4};
    ops.cross_entropy(
        {.loss = loss.f32(), .logits = z.data(), .target = target, .rows = 3, .v = v, .d_scale = 1, .t = t}, {});
    check_near(loss[0], ref::cross_entropy(rest, 2), 32 * kU, "loss", 0);
    for (int64_t i = 5; i < v; ++i) CHECK(z[i] == 0);
    CHECK_FALSE(std::isfinite(loss[1]));
    CHECK_FALSE(std::isfinite(loss[2]));
  });
}

TEST_CASE("cross_entropy does not depend on the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t rows = 37, v = 4001;
    Array z(t, rows * v, 1, 3), z1(t, rows * v), l1(DType::f32, rows);
    std::vector<int32_t> target;
    for (int64_t r = 0; r < rows; ++r) target.push_back(static_cast<int32_t>(r * 100));
    for (int threads : {1, 2, 3, 5}) {
      Array d = copy_of(z), l(DType::f32, rows);
      ops.cross_entropy({.loss = l.f32(),
                         .logits = d.data(),
                         .target = target.data(),
                         .rows = rows,
                         .v = v,
                         .d_scale = 0.01f,
                         .t = t},
                        {threads});
      if (threads == 1) {
        z1 = std::move(d), l1 = std::move(l);
        continue;
      }
      CHECK(d.same_bits(z1));
      CHECK(l.same_bits(l1));
    }
  });
}

}  // namespace
}  // namespace rw::test
