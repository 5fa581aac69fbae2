#include "tests/kernels/array.h"
#include "tests/kernels/simd_probe.h"

namespace rw::test {
namespace {

struct Variant {
  void (*probe)(const ProbeArgs&);
  Reduced (*reduce)(const float*, int64_t);
};

template <class F>
void each_variant(const F& f) {
  const Variant variants[] = {{cpu_scalar::probe, cpu_scalar::reduce},
                              {cpu_avx2::probe, cpu_avx2::reduce},
                              {cpu_avx512::probe, cpu_avx512::reduce},
                              {cpu_avx512_bf16::probe, cpu_avx512_bf16::reduce}};
  for (Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    INFO("isa " << std::string(isa_name(isa)));
    f(variants[static_cast<int>(isa)]);
  }
}

// The distance in units of the last place of `want`.
double ulps(float got, double want) {
  const int e = std::max(std::ilogb(want), -126);
  return std::abs(static_cast<double>(got) - want) / std::ldexp(1.0, e - 23);
}

struct Span {
  Probe f;
  double (*exact)(double);
  float from, to;
  double max_ulps;
};

// Every 97th float of the span.
std::vector<float> floats_of(float from, float to) {
  std::vector<float> v;
  const auto walk = [&](float a, float b, float sign) {  // 0 <= a <= b, by bit pattern
    uint32_t i, last;
    std::memcpy(&i, &a, 4), std::memcpy(&last, &b, 4);
    for (; i <= last; i += 97 * 7) {
      float x;
      std::memcpy(&x, &i, 4);
      v.push_back(sign * x);
    }
  };
  if (from < 0) walk(to < 0 ? -to : 0x1p-30f, -from, -1);
  if (to > 0) walk(from > 0 ? from : 0x1p-30f, to, 1);
  return v;
}

TEST_CASE("vexp, vtanh, vlog, vrcp, vsqrt are accurate to a few ulp") {
  const Span spans[] = {
      {Probe::exp, [](double x) { return std::exp(x); }, -87.33f, 88.72f, 2},
      {Probe::tanh, [](double x) { return std::tanh(x); }, -30, 30, 4},
      {Probe::log, [](double x) { return std::log(x); }, 0x1p-126f, 3e38f, 4},
      {Probe::log, [](double x) { return std::log(x); }, 0.5f, 2.0f, 4},
      {Probe::rcp, [](double x) { return 1 / x; }, -0x1p100f, 0x1p100f, 2},
      {Probe::sqrt, [](double x) { return std::sqrt(x); }, 0x1p-126f, 3e38f, 0.5001},
  };
  each_variant([&](const Variant& variant) {
    for (const Span& s : spans) {
      const std::vector<float> x = floats_of(s.from, s.to);
      REQUIRE(x.size() > 1000);
      std::vector<float> y(x.size());
      variant.probe({s.f, y.data(), x.data(), static_cast<int64_t>(x.size())});
      double worst = 0;
      float where = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double e = s.exact(static_cast<double>(x[i])) == 0 ? (y[i] == 0 ? 0 : 1e9)
                                                                 : ulps(y[i], s.exact(static_cast<double>(x[i])));
        if (!(e <= worst)) worst = e, where = x[i];
      }
      INFO("function " << static_cast<int>(s.f) << ", worst at " << where);
      CHECK(worst <= s.max_ulps);
    }
  });
}

TEST_CASE("vexp, vtanh, vlog at the edges") {
  const float inf = INFINITY, nan = NAN;
  each_variant([&](const Variant& variant) {
    const auto at = [&](Probe f, float x) {
      float y;
      variant.probe({f, &y, &x, 1});
      return y;
    };
    CHECK(at(Probe::exp, 0) == 1);
    CHECK(at(Probe::exp, -88) == 0);
    CHECK(at(Probe::exp, -inf) == 0);
    CHECK(at(Probe::exp, 89) == inf);
    CHECK(at(Probe::exp, inf) == inf);
    CHECK(std::isnan(at(Probe::exp, nan)));
    CHECK(at(Probe::tanh, inf) == 1);
    CHECK(at(Probe::tanh, -inf) == -1);
    CHECK(at(Probe::tanh, 0) == 0);
    CHECK(std::isnan(at(Probe::tanh, nan)));
    CHECK(at(Probe::log, 1) == 0);
    CHECK(at(Probe::log, 0) == -inf);
    CHECK(at(Probe::log, inf) == inf);
    CHECK(ulps(at(Probe::log, 0x1p-140f), -140 * std::log(2.0)) <= 2);
    CHECK(std::isnan(at(Probe::log, -1)));
    CHECK(std::isnan(at(Probe::log, nan)));
  });
}

TEST_CASE("hsum and hmax take every lane, load_n the first n only") {
  each_variant([](const Variant& variant) {
    for (int64_t n = 0; n <= 33; ++n) {
      Array x(DType::f32, n, 7);
      double sum = 0, max = n ? -2 : -3e38, mag = 0;
      for (int64_t i = 0; i < n; ++i) sum += x[i], mag += std::abs(x[i]), max = std::max(max, x[i]);
      const Reduced r = variant.reduce(x.f32(), n);
      check_near(static_cast<double>(r.sum), sum, 10 * kU * mag, "sum", n);
      if (n) CHECK(static_cast<double>(r.max) == max);
    }
  });
}

}  // namespace
}  // namespace rw::test
