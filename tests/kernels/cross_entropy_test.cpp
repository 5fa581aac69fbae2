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
  std::vector<int64_t> cuts = {};  // where the vocabulary is cut: none gives one part, two equal ones an empty part
};

struct Loss {
  Array loss, d;  // d: the logits afterwards
};

// Both halves as ranks would run them, each on its columns of a copy of z.
Loss cross_entropy(const Ops& ops, const Array& z, const std::vector<int32_t>& target, const Case& k, float d_scale,
                   int threads = 1) {
  std::vector<int64_t> edge = k.cuts;
  edge.insert(edge.begin(), 0);
  edge.push_back(k.v);
  const int64_t n_parts = static_cast<int64_t>(edge.size()) - 1, size = dtype_bytes(z.type());
  Loss out{Array(DType::f32, k.rows), copy_of(z)};
  Array parts(DType::f32, n_parts * k.rows * 3);
  for (int64_t i = 0; i < n_parts; ++i) {
    ops.cross_entropy_part({.part = parts.f32() + i * k.rows * 3,
                            .logits = static_cast<char*>(out.d.data()) + edge[i] * size,
                            .target = target.data(),
                            .rows = k.rows,
                            .v = edge[i + 1] - edge[i],
                            .v_begin = edge[i],
                            .ld = k.ld,
                            .t = z.type()},
                           {threads});
  }
  REQUIRE(out.d.same_bits(z));
  for (int64_t i = 0; i < n_parts; ++i) {
    Array loss(DType::f32, k.rows);
    ops.cross_entropy_finish({.loss = loss.f32(),
                              .logits = static_cast<char*>(out.d.data()) + edge[i] * size,
                              .parts = parts.f32(),
                              .n_parts = n_parts,
                              .target = target.data(),
                              .rows = k.rows,
                              .v = edge[i + 1] - edge[i],
                              .v_begin = edge[i],
                              .ld = k.ld,
                              .d_scale = d_scale,
                              .t = z.type()},
                             {threads});
    if (i > 0) CHECK(loss.same_bits(out.loss));
    out.loss = std::move(loss);
    CHECK(out.loss.canaries_alive());
  }
  CHECK((out.d.canaries_alive() && parts.canaries_alive()));
  return out;
}

void check_case(const Ops& ops, DType t, const Case& k) {
  CAPTURE(k.v);
  CAPTURE(k.range);
  CAPTURE(k.cuts.size());
  const float d_scale = 0.37f;
  Array z(t, k.rows * k.ld, 1, k.range);
  std::vector<int32_t> target;
  for (int64_t r = 0; r < k.rows; ++r)
    target.push_back(r % 4 == 3 ? -100 : static_cast<int32_t>((r * 31 + k.v - 1) % k.v));
  const Loss only = cross_entropy(ops, z, target, k, 0), both = cross_entropy(ops, z, target, k, d_scale);
  const Array &loss = both.loss, &d = both.d;
  REQUIRE(only.d.same_bits(z));  // only the loss was asked for
  CHECK(only.loss.same_bits(loss));
  const double n_parts = static_cast<double>(k.cuts.size()) + 1;
  for (int64_t r = 0; r < k.rows; ++r) {
    ref::Vec row;
    for (int64_t i = 0; i < k.v; ++i) row.push_back(z[r * k.ld + i]);
    if (target[r] < 0) {
      CHECK(loss[r] == 0);
      for (int64_t i = 0; i < k.v; ++i) CHECK(d[r * k.ld + i] == 0);
    } else {
      const double want = ref::cross_entropy(row, target[r]);
      // Each term: e^x 2 ulp, x - max rounded once (|x - max| <= 2 range) when added and once for each raised maximum,
      // and both again when a part is rescaled; the sum runs over v / 32 additions in a lane's two accumulators, 8
      // more, and the parts.
      const double deep = static_cast<double>(k.v) / 32 + 12 + (n_parts > 1 ? n_parts + 4 : 0);
      const double terms = (deep + 4 + (n_parts > 1 ? 6 : 4) * k.range) * kU;
      check_near(loss[r], want, terms + kU * std::abs(want), "loss", r);
      const ref::Vec g = ref::cross_entropy_grad(row, target[r]);
      for (int64_t i = 0; i < k.v; ++i) {
        const double y = g[i] * static_cast<double>(d_scale), p = i == target[r] ? g[i] + 1 : g[i];
        check_near(d[r * k.ld + i], y,
                   static_cast<double>(d_scale) * p * (terms + 4 * kU) + rounding_error(t, y) + 1e-37, "d_logits",
                   r * k.ld + i);
      }
    }
    for (int64_t i = k.v; i < k.ld; ++i) CHECK(d[r * k.ld + i] == z[r * k.ld + i]);
  }
}

TEST_CASE("cross_entropy equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t v : {1, 2, 4, 15, 16, 17, 31, 127, 128, 129, 257, 1009, 2049, 5003}) {
      check_case(ops, t, {5, v, v, 4});
      check_case(ops, t, {4, v, v + 3, 30});
    }
    check_case(ops, t, {0, 7, 7, 1});
  });
}

TEST_CASE("cross_entropy: a vocabulary cut into parts equals the whole") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{
             {500}, {0}, {1009}, {1, 18}, {300, 300}, {17, 17, 400, 1008}, {0, 250, 500, 1009}}) {
      check_case(ops, t, {9, 1009, 1013, 4, cuts});
      check_case(ops, t, {4, 1009, 1009, 30, cuts});
    }
    check_case(ops, t, {0, 7, 7, 1, {3}});
  });
}

// What a rank tells the others, from the definition.
TEST_CASE("cross_entropy_part: maximum, sum and the target's logit") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 37, begin = 100;
    Array z(t, 4 * v, 1, 3), part(DType::f32, 12);
    for (int64_t i = 0; i < v; ++i) z.set(3 * v + i, -INFINITY);
    const std::vector<int32_t> target{100, 136, 137, 101};
    CrossEntropyPart a{
        .part = part.f32(), .logits = z.data(), .target = target.data(), .rows = 4, .v = v, .v_begin = begin, .t = t};
    ops.cross_entropy_part(a, {});
    for (int64_t r = 0; r < 3; ++r) {
      double max = -INFINITY, sum = 0;
      for (int64_t i = 0; i < v; ++i) max = std::max(max, z[r * v + i]);
      for (int64_t i = 0; i < v; ++i) sum += std::exp(z[r * v + i] - max);
      CHECK(part[3 * r] == max);
      check_near(part[3 * r + 1], sum, 32 * kU * sum, "sum", r);
      CHECK(part[3 * r + 2] == (r < 2 ? z[r * v + target[static_cast<size_t>(r)] - begin] : -INFINITY));
    }
    CHECK((part[9] == -INFINITY && part[10] == 0 && part[11] == -INFINITY));
    a.v = 0, a.logits = nullptr;
    ops.cross_entropy_part(a, {});
    for (int64_t i = 0; i < 12; ++i) CHECK(part[i] == (i % 3 == 1 ? 0 : -INFINITY));
  });
}

TEST_CASE("cross_entropy: masked logits count nothing, bad ones show in the loss") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 300;
    for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{{}, {150}, {3, 3, 200, 290}}) {
      Array z(t, 5 * v, 1, 2);
      for (int64_t i = 5; i < v; ++i) z.set(i, -INFINITY);  // row 0: five logits are left
      z.set(v + 200, NAN);
      z.set(2 * v + 7, INFINITY);
      z.set(3 * v + 5, NAN);        // the target's
      z.set(4 * v + 6, -INFINITY);  // the target's: it cannot be
      const ref::Vec rest = {z[0], z[1], z[2], z[3], z[4]};
      const Loss got = cross_entropy(ops, z, {2, 3, 4, 5, 6}, {5, v, v, 2, cuts}, 1);
      check_near(got.loss[0], ref::cross_entropy(rest, 2), 64 * kU, "loss", 0);
      for (int64_t i = 5; i < v; ++i) CHECK(got.d[i] == 0);
      for (int64_t r = 1; r < 4; ++r) CHECK_FALSE(std::isfinite(got.loss[r]));
      CHECK(got.loss[4] == INFINITY);
    }
  });
}

// Row 0 is masked whole, with its target: no loss is defined, and none may look fine.
TEST_CASE("cross_entropy: nothing but masked logits is not finite") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t v = 70;
    Array z(t, v);
    for (int64_t i = 0; i < v; ++i) z.set(i, -INFINITY);
    for (const std::vector<int64_t>& cuts : std::vector<std::vector<int64_t>>{{}, {35}, {0, 69}})
      CHECK_FALSE(std::isfinite(cross_entropy(ops, z, {2}, {1, v, v, 2, cuts}, 1).loss[0]));
  });
}

TEST_CASE("cross_entropy does not depend on the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t rows = 37, v = 4001;
    Array z(t, rows * v, 1, 3);
    std::vector<int32_t> target;
    for (int64_t r = 0; r < rows; ++r) target.push_back(static_cast<int32_t>(r * 100));
    for (const Case& k : {Case{rows, v, v, 3}, Case{rows, v, v, 3, {1000, 1777}}}) {
      const Loss one = cross_entropy(ops, z, target, k, 0.01f);
      for (int threads : {2, 3, 5}) {
        const Loss got = cross_entropy(ops, z, target, k, 0.01f, threads);
        CHECK(got.d.same_bits(one.d));
        CHECK(got.loss.same_bits(one.loss));
      }
    }
  });
}

}  // namespace
}  // namespace rw::test
