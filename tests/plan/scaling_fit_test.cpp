#include "libcore/plan/long_run/scaling_fit.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>

#include "libcore/base/error.h"

using namespace rw;

namespace {

std::vector<ScalingPoint> points_of(const ScalingLaw& law, const std::vector<double>& sizes) {
  std::vector<ScalingPoint> points;
  for (const double n : sizes) {
    const double talk = law.growth == CommGrowth::linear ? n : std::log2(n);
    points.push_back({.n = n, .seconds = law.t1 * ((1 - law.p) / n + law.p + law.c * talk), .weight = 1});
  }
  return points;
}

std::string message_of(const std::vector<ScalingPoint>& points) {
  try {
    fit_scaling(points);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string parse_message(const std::string& text) {
  try {
    parse_scaling_points(text, "there.csv");
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the law by hand") {
  // P = 0.1, c = 0.001: S(10) = 1 / (0.09 + 0.1 + 0.01) = 5; N* = sqrt(0.9 / 0.001) = 30; S(30) = 1 / 0.16 = 6.25.
  const ScalingLaw law{.t1 = 40, .p = 0.1, .c = 0.001, .growth = CommGrowth::linear};
  CHECK(law.speedup(10) == doctest::Approx(5));
  CHECK(law.seconds(10) == doctest::Approx(8));
  CHECK(law.efficiency(10) == doctest::Approx(0.5));
  CHECK(law.best_n() == doctest::Approx(30));
  CHECK(law.speedup(30) == doctest::Approx(6.25));
  CHECK(law.speedup(29.7) < law.speedup(30));
  CHECK(law.speedup(30.3) < law.speedup(30));
  // Efficiency at 1 is 1 / 1.001; half of that at N with 0.9 + 0.1 N + 0.001 N^2 = 2.002: N = 10.0095.
  CHECK(law.knee(0.5, 1) == doctest::Approx((-0.1 + std::sqrt(0.01 + 4 * 0.001 * 1.102)) / 0.002));
  // log2: P = 0.2, c = 0.01: S(16) = 1 / (0.05 + 0.2 + 0.04); N* = 0.8 ln 2 / 0.01 = 55.45.
  const ScalingLaw slow{.t1 = 1, .p = 0.2, .c = 0.01, .growth = CommGrowth::logarithmic};
  CHECK(slow.speedup(16) == doctest::Approx(1 / 0.29));
  CHECK(slow.best_n() == doctest::Approx(55.4518));
  CHECK(slow.speedup(54) < slow.speedup(55.4518));
  CHECK(slow.speedup(57) < slow.speedup(55.4518));
  const ScalingLaw amdahl{.t1 = 1, .p = 0.05, .c = 0, .growth = CommGrowth::linear};
  CHECK(std::isinf(amdahl.best_n()));
  CHECK(amdahl.speedup(1e9) == doctest::Approx(20));  // 1 / P
  const ScalingLaw ideal{.t1 = 1, .p = 0, .c = 0, .growth = CommGrowth::linear};
  CHECK(std::isinf(ideal.knee(0.8, 1)));
}

TEST_CASE("a fit returns the law that made the points") {
  const std::vector<double> sizes = {1, 2, 3, 5, 8, 17, 32, 64, 256, 1024, 2048};
  for (const CommGrowth growth : {CommGrowth::linear, CommGrowth::logarithmic})
    for (const double p : {0.0, 1e-4, 0.02, 0.5})
      for (const double c : {1e-6, 3e-3}) {
        const ScalingLaw law{.t1 = 123, .p = p, .c = c, .growth = growth};
        const ScalingFit fit = fit_scaling(points_of(law, sizes));
        CAPTURE(p);
        CAPTURE(c);
        CHECK(fit.law.growth == growth);
        CHECK(fit.law.t1 == doctest::Approx(123).epsilon(1e-6));
        CHECK(fit.law.p == doctest::Approx(p).epsilon(1e-5));
        CHECK(fit.law.c == doctest::Approx(c).epsilon(1e-5));
        CHECK(fit.error < 1e-6);
        CHECK(fit.other_error > fit.error);
      }
}

TEST_CASE("three points are enough, and so are sizes that begin above one") {
  const ScalingLaw law{.t1 = 7, .p = 0.03, .c = 2e-4, .growth = CommGrowth::linear};
  const ScalingFit fit = fit_scaling(points_of(law, {8, 24, 96}));
  CHECK(fit.law.growth == CommGrowth::linear);
  CHECK(fit.law.p == doctest::Approx(0.03));
  CHECK(fit.law.c == doctest::Approx(2e-4));
  CHECK(fit.law.t1 == doctest::Approx(7));
}

TEST_CASE("noise and an outlier move the law little") {
  std::mt19937_64 bits(5);
  const auto noise = [&] { return 1 + 0.02 * (2 * static_cast<double>(bits() >> 11) * 1.1102230246251565e-16 - 1); };
  const ScalingLaw law{.t1 = 50, .p = 0.02, .c = 1e-4, .growth = CommGrowth::linear};
  std::vector<ScalingPoint> points = points_of(law, {1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256});
  for (ScalingPoint& p : points) p.seconds *= noise();
  const ScalingFit noisy = fit_scaling(points);
  CHECK(noisy.law.growth == CommGrowth::linear);
  CHECK(noisy.law.p == doctest::Approx(0.02).epsilon(0.1));
  CHECK(noisy.law.c == doctest::Approx(1e-4).epsilon(0.1));
  CHECK(noisy.error < 0.02);
  CHECK(noisy.worst_error < 0.04);
  points[7].seconds *= 2.5;  // a bad switch that day
  const ScalingFit robust = fit_scaling(points);
  CHECK(robust.law.p == doctest::Approx(0.02).epsilon(0.15));
  CHECK(robust.law.c == doctest::Approx(1e-4).epsilon(0.15));
  CHECK(robust.worst_error > 0.4);
}

TEST_CASE("bounds hold where the points would leave them") {
  // Faster than N allows (caches): P and c stay at 0 and the time of one device takes what it can.
  const std::vector<ScalingPoint> super = {{1, 1.00, 1}, {2, 0.45, 1}, {4, 0.21, 1}, {8, 0.10, 1}};
  const ScalingFit fit = fit_scaling(super);
  CHECK(fit.law.p == 0);
  CHECK(fit.law.c == 0);
  CHECK(fit.law.t1 == doctest::Approx(0.9).epsilon(0.1));
  // No gain at all: P is 1.
  const ScalingFit flat = fit_scaling(std::vector<ScalingPoint>{{1, 3, 1}, {5, 3, 1}, {11, 3, 1}});
  CHECK(flat.law.p == doctest::Approx(1));
  CHECK(flat.law.c == doctest::Approx(0));
  // A weight counts as that many measurements.
  std::vector<ScalingPoint> once = {{1, 1, 1}, {2, 0.6, 1}, {4, 0.30, 1}, {9, 0.25, 1}}, twice = once;
  twice[2].weight = 2;
  once.push_back(once[2]);
  CHECK(fit_scaling(twice).law.t1 == doctest::Approx(fit_scaling(once).law.t1));
  CHECK(message_of({{1, 1, 1}, {1, 1, 1}, {2, 0.5, 1}}).find("three sizes or more, found 2") != std::string::npos);
  CHECK(message_of({{1, 1, 1}, {4, 0, 1}, {2, 0.5, 1}}).find("seconds > 0") != std::string::npos);
  CHECK(message_of({{0.5, 1, 1}, {4, 1, 1}, {2, 0.5, 1}}).find("n >= 1") != std::string::npos);
}

TEST_CASE("measured points from CSV and JSON") {
  const auto csv =
      parse_scaling_points("# a comment\nhost, n ,step_time_s,tokens\r\na,1,2.5,1000\n\nb,4, 0.8,500\n", "x");
  REQUIRE(csv.size() == 2);
  CHECK(csv[0].n == 1);
  CHECK(csv[0].seconds == doctest::Approx(0.0025));
  CHECK(csv[1].seconds == doctest::Approx(0.0016));
  const auto json = parse_scaling_points(R"({"points": [{"n": 2, "step_time_s": 1.5, "weight": 3}]})", "x");
  REQUIRE(json.size() == 1);
  CHECK(json[0].seconds == 1.5);
  CHECK(json[0].weight == 3);
  CHECK(parse_scaling_points(R"( [{"n": 2, "step_time_s": 1.5}])", "x").size() == 1);
  CHECK(parse_message("n,time\n1,2\n").find("there.csv:1: expected a head line") != std::string::npos);
  CHECK(parse_message("n,step_time_s\n1,2\n1,fast\n").find("there.csv:3: step_time_s: expected a number") !=
        std::string::npos);
  CHECK(parse_message("n,step_time_s\n1\n").find("expected 2 cells") != std::string::npos);
  CHECK(parse_message("[{\"n\": 1}]").find("step_time_s") != std::string::npos);
  CHECK(parse_message("{\"points\": 3}").find("expected an array") != std::string::npos);
}

TEST_CASE("scaling points: no step time, byte or number of lines breaks the fit") {
  const std::string head = "n,step_time_s\n";
  CHECK(parse_message(head + "1,1\n2,1e-308\n").find("there.csv:3: step_time_s: expected 1e-09 to 1e+09") == 0);
  CHECK(parse_message(head + "1,1e300\n").find("there.csv:2: step_time_s") == 0);
  CHECK(parse_message(head + "1,0\n").find("there.csv:2: step_time_s") == 0);
  CHECK(parse_message(head + "0.5,1\n").find("there.csv:2: n: expected") == 0);
  CHECK(parse_message("[{\"n\": 1, \"step_time_s\": 1e-300}]").find("there.csv: point 0: step_time_s") == 0);
  CHECK(parse_scaling_points("\xEF\xBB\xBF" + head + "1,2\n", "there.csv").size() == 1);
  const std::string bytes = parse_message(head + std::string("1,\0\x1b[31m\n", 9));
  CHECK(bytes.find("\\u0000\\u001B[31m") != std::string::npos);
  CHECK(bytes.find('\x1b') == std::string::npos);
  std::string many = head;
  for (int i = 0; i <= 10'000; ++i) many += "1,1\n";
  CHECK(parse_message(many).find("more than 10000 points") != std::string::npos);
}
