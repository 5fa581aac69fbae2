// Products followed by GELU or by its slope, against sums in double; on the CPU to the bit those of the ops apart.
#include "tests/kernels/gemm_backends.h"
#include "tests/ref/kernels.h"

namespace rw::test {
namespace {

// A matrix at a multiple of 16 bytes, where a backend may have a way of its own, or one element past it.
enum class Place : uint8_t { aligned, shifted };
class Matrix {
 public:
  Matrix(DType t, int64_t n, Place place) : before_(unused(t, place)), all_(t, before_ + n) {}
  Matrix(DType t, int64_t n, Place place, uint64_t seed, double range = 1)
      : before_(unused(t, place)), all_(t, before_ + n, seed, range) {}
  void* data() { return static_cast<char*>(all_.data()) + before_ * dtype_bytes(all_.type()); }
  float* f32() { return static_cast<float*>(data()); }
  double operator[](int64_t i) const { return all_[before_ + i]; }
  bool same_bits(const Matrix& o) const { return all_.same_bits(o.all_); }
  bool canaries_alive() const { return all_.canaries_alive(); }

 private:
  // An array begins one element past a multiple of 64 bytes.
  static int64_t unused(DType t, Place place) { return place == Place::aligned ? 16 / dtype_bytes(t) - 1 : 0; }
  int64_t before_;
  Array all_;
};

void multiply(const Ops& ops, Gemm g, Packed packed, int threads) {
  const Stream stream{threads};
  GemmPack pack{.packed = nullptr, .b = g.b, .n = g.n, .k = g.k, .b_trans = g.b_trans, .src_t = g.t, .t = g.t};
  const int64_t bytes = packed == Packed::yes ? ops.packed_bytes(pack, stream) : 0;
  Aligned b(bytes);
  if (bytes > 0) {  // else b serves as it is
    pack.packed = b.data();
    ops.gemm_pack(pack, stream);
    g.b_packed = b.data(), g.b = nullptr;
  }
  Aligned workspace(ops.gemm_workspace(g, stream));
  g.workspace = workspace.data();
  ops.gemm(g, stream);
  CHECK((b.canaries_alive() && workspace.canaries_alive()));
}

struct Case {
  int64_t m, n, k;
  Place place = Place::aligned;
  DType t = DType::f32, ct = DType::f32;
  bool bias = false;
  Packed packed = Packed::no;
  int threads = 1;
};
constexpr int64_t kShapes[][3] = {{1, 1, 1},  {5, 8, 7}, {17, 40, 64}, {3, 33, 70}, {1, 96, 31},
                                  {4, 24, 0}, {2, 7, 0}, {0, 8, 5},    {8, 0, 5}};
template <class F>
void each_case(DType t, const F& f) {
  int turn = 0;
  for (const auto& s : kShapes)
    for (const Place place : {Place::aligned, Place::shifted})
      for (const DType ct : {t, DType::f32}) {
        if (ct != t || t == DType::f32) ++turn;
        f(Case{.m = s[0],
               .n = s[1],
               .k = s[2],
               .place = place,
               .t = t,
               .ct = ct,
               .bias = turn % 2 == 0,
               .packed = turn % 3 == 0 ? Packed::yes : Packed::no,
               .threads = 1 + turn % 3});
      }
}

struct Inputs {
  Array a, b, bias;
  Matrix x;  // whose slope is taken
  explicit Inputs(const Case& q)
      : a(q.t, q.m * q.k, 1), b(q.t, q.n * q.k, 2), bias(DType::f32, q.n, 3), x(q.ct, q.m * q.n, q.place, 4, 4) {}
  Gemm product(const Case& q) {
    return {.c = nullptr,
            .a = a.data(),
            .b = b.data(),
            .bias = q.bias ? bias.f32() : nullptr,
            .m = q.m,
            .n = q.n,
            .k = q.k,
            .b_trans = Trans::yes,
            .t = q.t,
            .ct = q.ct};
  }
};

// An element of a product, and the bound of its error in the type of c (gemm_test.cpp), bias included.
struct Sum {
  double value = 0, bound = 0;
};
Sum element(const Case& q, const Inputs& in, int64_t row, int64_t column) {
  double sum = 0, magnitude = 0;
  for (int64_t k = 0; k < q.k; ++k) {
    const double p = in.a[row * q.k + k] * in.b[column * q.k + k];
    sum += p, magnitude += std::abs(p);
  }
  if (q.bias) sum += in.bias[column], magnitude += std::abs(in.bias[column]);
  double bound = static_cast<double>(q.k + 2) * (kU * magnitude + 0x1p-126);
  if (q.ct != DType::f32 && q.bias && kRoundsBias) bound += rounding_error(q.ct, std::abs(in.bias[column]));
  if (q.ct != DType::f32) bound += rounding_error(q.ct, std::abs(sum) + bound);
  return {sum, bound};
}

// GELU's slope is within 1.13 of 0. Its own error, and its slope's, are those of activation_test.cpp.
constexpr double kSteepest = 1.13;
double sigmoid_error(double x) { return (16 + 2 * std::abs(1.6 * x + 0.0714 * x * x * x)) * kU; }

void check_forward(const Case& q, const Inputs& in, const Matrix* c, const Matrix& act) {
  for (int64_t i = 0; i < q.m * q.n; ++i) {
    const Sum sum = element(q, in, i / q.n, i % q.n);
    if (c != nullptr) check_near((*c)[i], sum.value, sum.bound, "c", i);
    const double want = ref::gelu(sum.value);
    const double bound = kSteepest * sum.bound + sigmoid_error(sum.value) * std::abs(want);
    check_near(act[i], want, bound + rounding_error(q.ct, std::abs(want) + bound), "gelu", i);
  }
}

void check_backward(const Case& q, const Inputs& in, const Matrix& c) {
  for (int64_t i = 0; i < q.m * q.n; ++i) {
    const Sum sum = element(q, in, i / q.n, i % q.n);
    const double x = in.x[i], s = ref::gelu(x) / x, want = sum.value * ref::gelu_slope(x);
    const double terms = s + std::abs(x) * s * (1 - s) * (1.6 + 0.215 * x * x);
    const double bound = kSteepest * sum.bound + std::abs(sum.value) * 2 * sigmoid_error(x) * terms;
    check_near(c[i], want, bound + rounding_error(q.ct, std::abs(want) + bound), "c * gelu'", i);
  }
}

TEST_CASE("gemm with gelu equals the reference, beside the product and in its place") {
  each_table_and_type([](const Ops& ops, DType t) {
    each_case(t, [&](const Case& q) {
      INFO("(" << q.m << "," << q.n << "," << q.k << ") " << (q.place == Place::aligned ? "aligned" : "shifted")
               << " bias " << q.bias << " packed " << int(q.packed) << " to " << std::string(dtype_name(q.ct)));
      Inputs in(q);
      Matrix c(q.ct, q.m * q.n, q.place), act(q.ct, q.m * q.n, q.place), alone(q.ct, q.m * q.n, q.place);
      Gemm g = in.product(q);
      g.c = c.data(), g.gelu = act.data();
      multiply(ops, g, q.packed, q.threads);
      check_forward(q, in, &c, act);
      g.c = g.gelu = alone.data();
      multiply(ops, g, q.packed, q.threads);
      check_forward(q, in, nullptr, alone);
      CHECK((c.canaries_alive() && act.canaries_alive() && alone.canaries_alive()));
    });
  });
}

TEST_CASE("gemm with gelu's slope equals the reference") {
  each_table_and_type([](const Ops& ops, DType t) {
    each_case(t, [&](Case q) {
      q.bias = false;
      INFO("(" << q.m << "," << q.n << "," << q.k << ") " << (q.place == Place::aligned ? "aligned" : "shifted")
               << " packed " << int(q.packed) << " to " << std::string(dtype_name(q.ct)));
      Inputs in(q);
      Matrix c(q.ct, q.m * q.n, q.place);
      Gemm g = in.product(q);
      g.c = c.data(), g.gelu_slope_of = in.x.data();
      multiply(ops, g, q.packed, q.threads);
      check_backward(q, in, c);
      CHECK((c.canaries_alive() && in.x.canaries_alive()));
    });
  });
}

TEST_CASE("gemm with gelu: what does not go together is refused") {
  each_table_and_type([](const Ops& ops, DType t) {
    const Case q{.m = 2, .n = 8, .k = 3, .t = t};
    Inputs in(q);
    Array c(DType::f32, 32), other(DType::f32, 32);
    Gemm good = in.product(q);
    good.c = c.data(), good.gelu = other.data();
    const auto refused = [&](const auto& change) {
      Gemm g = good;
      change(g);
      CHECK_THROWS(multiply(ops, g, Packed::no, 1));
    };
    refused([](Gemm& g) { g.write = Write::accumulate; });
    refused([](Gemm& g) { g.ldc = g.n + 1; });
    refused([&](Gemm& g) { g.gelu_slope_of = in.x.data(); });
    good.gelu = nullptr, good.gelu_slope_of = in.x.data();
    refused([&](Gemm& g) { g.bias = in.bias.f32(); });
    refused([](Gemm& g) { g.gelu_slope_of = g.c; });
    refused([](Gemm& g) { g.write = Write::accumulate; });
    multiply(ops, good, Packed::no, 1);
  });
}

#if !defined(RW_TEST_CUDA)
TEST_CASE("gemm with gelu: the bits of the ops apart") {
  each_table_and_type([](const Ops& ops, DType t) {
    each_case(t, [&](Case q) {
      Inputs in(q);
      const int64_t n = q.m * q.n;
      Matrix c(q.ct, n, q.place), act(q.ct, n, q.place), alone(q.ct, n, q.place), slope(q.ct, n, q.place);
      Matrix apart_c(q.ct, n, q.place), apart_act(q.ct, n, q.place), apart_slope(q.ct, n, q.place);
      const Stream stream{q.threads};
      Gemm g = in.product(q);
      g.c = apart_c.data();
      multiply(ops, g, q.packed, q.threads);
      ops.gelu_fwd({.y = apart_act.data(), .x = apart_c.data(), .n = n, .t = q.ct}, stream);
      g.c = c.data(), g.gelu = act.data();
      multiply(ops, g, q.packed, q.threads);
      g.c = g.gelu = alone.data();
      multiply(ops, g, q.packed, q.threads);
      CHECK(c.same_bits(apart_c));
      CHECK(act.same_bits(apart_act));
      CHECK(alone.same_bits(apart_act));
      g.bias = nullptr, g.gelu = nullptr;
      g.c = apart_slope.data();
      multiply(ops, g, q.packed, q.threads);
      ops.gelu_bwd({.d_x = g.c, .d_y = g.c, .x = in.x.data(), .n = n, .t = q.ct}, stream);
      g.c = slope.data(), g.gelu_slope_of = in.x.data();
      multiply(ops, g, q.packed, q.threads);
      CHECK(slope.same_bits(apart_slope));
    });
  });
}
#endif

}  // namespace
}  // namespace rw::test
