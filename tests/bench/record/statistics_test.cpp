#include "libcore/bench/record/statistics.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "libcore/bench/record/student_t.h"

using namespace rw;

TEST_CASE("quantiles are numpy's default: np.quantile([3.5, 1.25, 9, 4, 2, 7.75, 6], q)") {
  const std::vector<double> v = {3.5, 1.25, 9, 4, 2, 7.75, 6};
  const double shares[] = {0, 0.1, 0.25, 0.5, 0.9, 0.99, 1};
  const double expected[] = {1.25, 1.7, 2.75, 4, 8.25, 8.925, 9};
  for (size_t i = 0; i < 7; ++i) CHECK(quantile_of(v, shares[i]) == doctest::Approx(expected[i]).epsilon(1e-12));
  CHECK(mean_of(v) == doctest::Approx(4.785714285714286));
  CHECK(deviation_of(v) == doctest::Approx(2.902687588786509));  // np.std(v, ddof=1)
}

TEST_CASE("quantiles of one value, of two, of none, of something that is no number") {
  const std::vector<double> one = {7}, two = {1, 4}, none;
  CHECK(quantile_of(one, 0.99) == 7);
  CHECK(quantile_of(two, 0.25) == doctest::Approx(1.75));
  CHECK(std::isnan(quantile_of(none, 0.5)));
  CHECK(std::isnan(mean_of(none)));
  CHECK(deviation_of(one) == 0);
  CHECK(std::isnan(quantile_of(std::vector<double>{1, std::numeric_limits<double>::quiet_NaN(), 2}, 0.5)));
}

TEST_CASE("Student's quantiles as tables have them (scipy.stats.t.ppf)") {
  const std::pair<int64_t, double> expected[] = {{1, 6.313751515},  {2, 2.919985580},  {3, 2.353363435},
                                                 {4, 2.131846786},  {5, 2.015048373},  {9, 1.833112933},
                                                 {18, 1.734063607}, {100, 1.660234326}};
  for (const auto& [n, t] : expected) {
    CHECK(student_quantile(0.95, n) == doctest::Approx(t).epsilon(1e-9));
    CHECK(student_quantile(0.05, n) == doctest::Approx(-t).epsilon(1e-9));
    CHECK(student_cdf(t, n) == doctest::Approx(0.95).epsilon(1e-9));
    CHECK(student_cdf(0, n) == 0.5);
  }
  CHECK(student_cdf(1.3, 5) == doctest::Approx(0.874849683).epsilon(1e-8));
  CHECK(normal_quantile(0.975) == doctest::Approx(1.959963985).epsilon(1e-9));
  CHECK(student_quantile(0.975, 1000000) == doctest::Approx(1.959963985).epsilon(1e-5));
}

TEST_CASE("false discoveries: scipy.stats.false_discovery_control gives .035 .047 .053 .035 .8 .056 .233") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> p = {0.01, 0.02, 0.03, nan, 0.005, 0.8, 0.04, 0.2};
  CHECK(control_false_discoveries(p, 0.05) == std::vector<bool>{true, true, false, false, true, false, false, false});
  CHECK(control_false_discoveries(p, 0.054) == std::vector<bool>{true, true, true, false, true, false, false, false});
  CHECK(control_false_discoveries(std::vector<double>{0.2, 0.3}, 0.05) == std::vector<bool>{false, false});
  CHECK(control_false_discoveries(std::vector<double>{}, 0.05).empty());
}
