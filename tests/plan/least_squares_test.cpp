#include "libcore/plan/price/least_squares.h"

#include <doctest/doctest.h>

#include <cmath>

using namespace rw;

TEST_CASE("least_squares: Rosenbrock's valley ends at (1, 1)") {
  const auto residuals = [](const std::vector<double>& p) {
    return std::vector<double>{10 * (p[1] - p[0] * p[0]), 1 - p[0]};
  };
  const Fit fit =
      fit_least_squares({{-1.2, -5, 5}, {1, -5, 5}}, residuals, {.most_rounds = 500, .soft = 1e3, .tolerance = 1e-14});
  CHECK(fit.parameters[0] == doctest::Approx(1).epsilon(1e-3));
  CHECK(fit.parameters[1] == doctest::Approx(1).epsilon(1e-3));
  CHECK(fit.cost < 1e-6);
  CHECK(fit.cost_before > 20);
}

TEST_CASE("least_squares: a line through points with one wild one follows the others") {
  std::vector<double> x, y;
  for (int i = 0; i < 11; ++i) x.push_back(i), y.push_back(2 + 3 * i);
  y[5] = 1000;
  const auto residuals = [&](const std::vector<double>& p) {
    std::vector<double> r;
    for (size_t i = 0; i < x.size(); ++i) r.push_back(p[0] + p[1] * x[i] - y[i]);
    return r;
  };
  const Fit fit = fit_least_squares({{0, -100, 100}, {1, -100, 100}}, residuals, {.most_rounds = 200, .soft = 0.1});
  CHECK(fit.parameters[0] == doctest::Approx(2).epsilon(0.05));
  CHECK(fit.parameters[1] == doctest::Approx(3).epsilon(0.05));
}

TEST_CASE("least_squares: bounds hold, and a parameter without room keeps its value") {
  const auto residuals = [](const std::vector<double>& p) {
    return std::vector<double>{std::log(p[0]) - std::log(10.0), std::log(p[1] * p[2]) - std::log(6.0)};
  };
  const Fit fit = fit_least_squares({{1, 0.5, 4}, {2, 2, 2}, {1, 0.1, 100}}, residuals);
  CHECK(fit.parameters[0] == doctest::Approx(4));
  CHECK(fit.parameters[1] == 2);
  CHECK(fit.parameters[2] == doctest::Approx(3).epsilon(1e-3));
}
