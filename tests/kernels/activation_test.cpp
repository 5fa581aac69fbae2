#include "tests/kernels/array.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

const int64_t kSizes[] = {0, 1, 3, 4, 5, 15, 16, 17, 31, 33, 127, 1031};

// The exponential (2 ulp), its argument, the reciprocal and a handful of products: 16 roundings of the terms, and the
// argument's error grows with its size, as for any f32 exponential: |2u| <= 2|x| + 0.1|x|^3.
double sigmoid_bound(double argument) { return (16 + 2 * argument) * kU; }
double gelu_argument(double x) { return std::min(90.0, std::abs(1.6 * x + 0.0714 * x * x * x)); }

TEST_CASE("the slopes agree with finite differences") {
  for (double x = -6; x < 6; x += 0.37) {
    check_near(ref::gelu_slope(x), ref::slope([](const ref::Vec& v) { return ref::gelu(v[0]); }, {x}, 0), 1e-9, "gelu",
               0);
    check_near(ref::silu_slope(x), ref::slope([](const ref::Vec& v) { return ref::silu(v[0]); }, {x}, 0), 1e-9, "silu",
               0);
  }
}

TEST_CASE("gelu equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t n : kSizes) {
      Array x(t, n, 1, 6), d_y(t, n, 2), y(t, n), d_x(t, n), in_place = copy_of(d_y);
      ops.gelu_fwd({.y = y.data(), .x = x.data(), .n = n, .t = t}, {});
      ops.gelu_bwd({.d_x = d_x.data(), .d_y = d_y.data(), .x = x.data(), .n = n, .t = t}, {});
      ops.gelu_bwd({.d_x = in_place.data(), .d_y = in_place.data(), .x = x.data(), .n = n, .t = t}, {});
      for (int64_t i = 0; i < n; ++i) {
        const double e = sigmoid_bound(gelu_argument(x[i])), want = ref::gelu(x[i]);
        // where the sigmoid is s, its error is e times min(s, 1-s) plus the rounding of s; |want| = |x| s
        check_near(y[i], want, e * std::abs(want) + rounding_error(t, want) + 1e-30, "gelu", i);
        const double slope = ref::gelu_slope(x[i]), s = want / x[i];
        const double terms = s + std::abs(x[i]) * s * (1 - s) * (1.6 + 0.215 * x[i] * x[i]);
        check_near(d_x[i], slope * d_y[i], std::abs(d_y[i]) * 2 * e * terms + rounding_error(t, slope * d_y[i]) + 1e-30,
                   "gelu'", i);
      }
      CHECK(y.canaries_alive());
      CHECK(d_x.canaries_alive());
      CHECK(in_place.same_bits(d_x));
    }
  });
}

TEST_CASE("swiglu equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t f : kSizes) {
      const int64_t rows = 3;
      Array x(t, rows * 2 * f, 1, 8), d_y(t, rows * f, 2), y(t, rows * f), d_x(t, rows * 2 * f);
      ops.swiglu_fwd({.y = y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {});
      ops.swiglu_bwd({.d_x = d_x.data(), .d_y = d_y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {});
      for (int64_t i = 0; i < rows * f; ++i) {
        const int64_t at = i / f * 2 * f + i % f;
        const double g = x[at], up = x[at + f], e = sigmoid_bound(std::abs(g)), d = d_y[i];
        const double want = ref::silu(g) * up, want_up = d * ref::silu(g), s = ref::silu(g) / g;
        check_near(y[i], want, e * std::abs(want) + rounding_error(t, want), "y", i);
        check_near(d_x[at + f], want_up, e * std::abs(want_up) + rounding_error(t, want_up), "d_up", i);
        const double want_gate = d * up * ref::silu_slope(g), terms = s + std::abs(g) * s * (1 - s);
        check_near(d_x[at], want_gate, std::abs(d * up) * 2 * e * terms + rounding_error(t, want_gate), "d_gate", i);
      }
      CHECK(y.canaries_alive());
      CHECK(d_x.canaries_alive());
    }
  });
}

// An operand whose elements begin at a multiple of 16 bytes, with one canary at least behind them.
struct AlignedArray {
  Array all;
  int64_t n;
  AlignedArray(DType t, int64_t size) : all(t, size + 16 / dtype_bytes(t)), n(size) {}
  explicit AlignedArray(const Array& of) : AlignedArray(of.type(), of.size()) {
    for (int64_t i = 0; i < n; ++i) all.set(shift() + i, of[i]);
  }
  int64_t shift() {
    const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(all.data()) % 16);
    return (16 - past) % 16 / dtype_bytes(all.type());
  }
  void* data() { return static_cast<char*>(all.data()) + shift() * dtype_bytes(all.type()); }
  bool holds(const Array& expected) {
    return std::memcmp(data(), expected.data(), static_cast<size_t>(n * dtype_bytes(all.type()))) == 0 &&
           all[shift() + n] == Array(all.type(), 1)[0] && all.canaries_alive();
  }
};

TEST_CASE("swiglu: the same bits from operands that begin at 16 bytes") {
  each_table_and_type([](const Ops& ops, DType t) {
    for (int64_t f : {4, 8, 17, 24, 40, 1032, 2056, 4104}) {
      const int64_t rows = 3;
      const Array x(t, rows * 2 * f, 1, 8), d_y(t, rows * f, 2);
      Array y(t, rows * f), d_x(t, rows * 2 * f);
      ops.swiglu_fwd({.y = y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {});
      ops.swiglu_bwd({.d_x = d_x.data(), .d_y = d_y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {});
      AlignedArray x_at(x), d_y_at(d_y), y_at(t, rows * f), d_x_at(t, rows * 2 * f);
      ops.swiglu_fwd({.y = y_at.data(), .x = x_at.data(), .rows = rows, .f = f, .t = t}, {});
      ops.swiglu_bwd({.d_x = d_x_at.data(), .d_y = d_y_at.data(), .x = x_at.data(), .rows = rows, .f = f, .t = t}, {});
      CHECK(y_at.holds(y));
      CHECK(d_x_at.holds(d_x));
      CHECK(x_at.holds(x));
    }
  });
}

TEST_CASE("activations: huge, infinite and NaN inputs") {
  each_table_and_type([](const Ops& ops, DType t) {
    const double inf = INFINITY, in[] = {1e4, -1e4, 90, -90, 1e30, -1e30, inf, NAN};
    Array x(t, 8), y(t, 8), d_y(t, 8), d_x(t, 8), z(t, 16), w(t, 8);
    for (int i = 0; i < 8; ++i) x.set(i, in[i]), d_y.set(i, 1), z.set(i, in[i]), z.set(8 + i, 1);
    ops.gelu_fwd({.y = y.data(), .x = x.data(), .n = 8, .t = t}, {});
    ops.gelu_bwd({.d_x = d_x.data(), .d_y = d_y.data(), .x = x.data(), .n = 6, .t = t}, {});
    ops.swiglu_fwd({.y = w.data(), .x = z.data(), .rows = 1, .f = 8, .t = t}, {});
    for (const Array* a : {&y, &w}) {
      for (int i : {0, 2, 4, 6}) CHECK((*a)[i] == x[i]);  // 1e30 is infinite in f16
      for (int i : {1, 3}) CHECK(std::abs((*a)[i]) < 1e-30);
      CHECK(std::isnan((*a)[7]));
    }
    for (int i : {0, 2}) CHECK(d_x[i] == 1);
    for (int i : {1, 3}) CHECK(std::abs(d_x[i]) < 1e-25);
  });
}

TEST_CASE("activations do not depend on the number of threads") {
  each_table_and_type([](const Ops& ops, DType t) {
    const int64_t rows = 77, f = 1201, n = rows * f;
    Array x(t, 2 * n, 1, 4), d_y(t, n, 2), g1(t, n), b1(t, n), y1(t, n), d1(t, 2 * n);
    for (int threads : {1, 2, 3, 5}) {
      Array g(t, n), b(t, n), y(t, n), d(t, 2 * n);
      ops.gelu_fwd({.y = g.data(), .x = x.data(), .n = n, .t = t}, {threads});
      ops.gelu_bwd({.d_x = b.data(), .d_y = d_y.data(), .x = x.data(), .n = n, .t = t}, {threads});
      ops.swiglu_fwd({.y = y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {threads});
      ops.swiglu_bwd({.d_x = d.data(), .d_y = d_y.data(), .x = x.data(), .rows = rows, .f = f, .t = t}, {threads});
      if (threads == 1) {
        g1 = std::move(g), b1 = std::move(b), y1 = std::move(y), d1 = std::move(d);
        continue;
      }
      CHECK(g.same_bits(g1));
      CHECK(b.same_bits(b1));
      CHECK(y.same_bits(y1));
      CHECK(d.same_bits(d1));
    }
  });
}

}  // namespace
}  // namespace rw::test
