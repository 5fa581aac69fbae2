#include "libcore/bench/load/arrivals.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "libcore/base/error.h"

using namespace rw;

namespace {

ArrivalPlan plan(int64_t n, double rate, double burstiness = 1, uint64_t seed = 7) {
  ArrivalPlan p;
  p.n = n;
  p.rate = rate;
  p.burstiness = burstiness;
  p.seed = seed;
  return p;
}

std::vector<double> gaps_of(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  return gaps;
}

double squared_cv(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double v : values) {
    sum += v;
    squares += v * v;
  }
  const auto n = static_cast<double>(values.size());
  return squares / n / (sum / n) / (sum / n) - 1;
}

}  // namespace

TEST_CASE("arrivals: ascending from 0, at exactly the rate, the same for the same seed") {
  for (const double rate : {0.3, 4.0, 700.0}) {
    const std::vector<double> times = arrival_times(plan(101, rate));
    REQUIRE(times.size() == 101);
    CHECK(times.front() == 0);
    CHECK(std::is_sorted(times.begin(), times.end()));
    CHECK(times.back() == doctest::Approx(100 / rate));
    CHECK(times == arrival_times(plan(101, rate)));
    CHECK(times != arrival_times(plan(101, rate, 1, 8)));
  }
  CHECK(arrival_times(plan(0, 1)).empty());
  CHECK(arrival_times(plan(1, 1)) == std::vector<double>{0});
}

TEST_CASE("arrivals: all at once") {
  const std::vector<double> times = arrival_times(plan(5, std::numeric_limits<double>::infinity()));
  CHECK(times == std::vector<double>(5, 0.0));
}

TEST_CASE("arrivals: gaps are gamma distributed with the burstiness as shape") {
  // Of a gamma distribution of shape g: squared coefficient of variation 1 / g; with g = 1 a share 1 - exp(-x) below x.
  for (const double shape : {0.25, 1.0, 4.0, 100.0}) {
    const std::vector<double> gaps = gaps_of(arrival_times(plan(40001, 1, shape)));
    CHECK(squared_cv(gaps) == doctest::Approx(1 / shape).epsilon(0.08));
  }
  const std::vector<double> gaps = gaps_of(arrival_times(plan(40001, 1)));
  for (const double x : {0.1, 1.0, 3.0}) {
    const auto below = static_cast<double>(std::count_if(gaps.begin(), gaps.end(), [&](double g) { return g < x; }));
    CHECK(below / 40000 == doctest::Approx(1 - std::exp(-x)).epsilon(0.03));
  }
}

TEST_CASE("arrivals: ramps go request by request") {
  // Steady gaps (shape 1e6): gap i is 1 / rate(i / (n - 1)).
  ArrivalPlan p = plan(101, 0, 1e6);
  p.ramp_from = 2;
  p.ramp_to = 8;
  for (const char* kind : {"linear", "exponential"}) {
    p.ramp = kind;
    const std::vector<double> gaps = gaps_of(arrival_times(p));
    REQUIRE(gaps.size() == 100);
    const double middle = std::string(kind) == "linear" ? 5 : 4;
    CHECK(1 / gaps[49] == doctest::Approx(middle).epsilon(0.01));
    CHECK(1 / gaps[99] == doctest::Approx(8).epsilon(0.01));
    CHECK(1 / gaps[0] == doctest::Approx(2).epsilon(0.04));
  }
}

TEST_CASE("arrivals: how many requests a time holds") {
  CHECK(requests_within(plan(0, 4), 10) == 41);
  CHECK(requests_within(plan(0, 0.01), 10) == 1);
  ArrivalPlan p = plan(0, 0, 1e6);
  p.ramp_from = 2;
  p.ramp_to = 8;
  for (const char* kind : {"linear", "exponential"}) {
    p.ramp = kind;
    p.n = requests_within(p, 50);
    CHECK(arrival_times(p).back() == doctest::Approx(50).epsilon(0.02));
  }
  CHECK_THROWS_AS(requests_within(plan(0, std::numeric_limits<double>::infinity()), 10), Error);
  CHECK_THROWS_AS(requests_within(plan(0, 1e6), 1e6), Error);
}
