#include "libcore/ckpt/interval.h"

#include <doctest/doctest.h>

#include <cmath>
#include <initializer_list>

using namespace rw;

namespace {

// Expected seconds that a run of `work` seconds takes with a save of `cost` after each `interval`, failures being
// exponential with this mean and repairs free: Daly 2006, equation 13 with R = 0.
double expected_s(double work, double interval, double cost, double mtbf) {
  return mtbf * std::expm1((interval + cost) / mtbf) * work / interval;
}

}  // namespace

TEST_CASE("no other interval makes a run shorter") {
  for (const double cost : {0.01, 1.0, 30.0, 300.0})
    for (const double mtbf : {600.0, 4 * 3600.0, 30 * 86400.0}) {
      if (cost > mtbf / 4) continue;  // the formula is an expansion in cost / mtbf
      const double best = optimal_interval_s(cost, mtbf);
      const double time = expected_s(1e6, best, cost, mtbf);
      for (const double factor : {0.5, 0.8, 0.95, 1.05, 1.25, 2.0})
        CHECK(time <= expected_s(1e6, best * factor, cost, mtbf) * (1 + 1e-5));
    }
}

TEST_CASE("published value, and limits") {
  // Young's sqrt(2 C M) where a save is short against the failures: 5 minutes and 24 hours give 2 hours.
  CHECK(optimal_interval_s(300, 86400) ==
        doctest::Approx(7200 * (1 + std::sqrt(300.0 / 172800) / 3 + 300.0 / 172800 / 9) - 300));
  CHECK(optimal_interval_s(1e5, 1e4) == 1e4);
  CHECK(optimal_interval_s(0, 1e4) == 0);
}

TEST_CASE("Young's interval at published failure rates") {
  // Llama 3's 419 unplanned interruptions in 54 days (Dubey et al. 2024, section 3.3.4): one in 3.09 hours. A save that
  // stops the run for a minute is then due every sqrt(2 * 60 * 11124) = 1155 s = 19.3 minutes.
  const double mtbf = 54 * 86400.0 / 419;
  CHECK(mtbf / 3600 == doctest::Approx(3.09).epsilon(0.002));
  CHECK(young_interval_s(60, 3.09 * 3600) / 60 == doctest::Approx(19.3).epsilon(0.005));
  // BLOOM-176B wrote 2.3 TB in 40 s (its chronicles): with a crash a week, every 6956 s, which are 66 steps of 105 s.
  CHECK(young_interval_s(40, 7 * 86400.0) == doctest::Approx(6955.8).epsilon(1e-4));
  CHECK(optimal_interval_steps({.cost_s = 40, .background_s = 0, .mtbf_s = 7 * 86400.0, .step_s = 105}) == 66);
}

TEST_CASE("the interval is where a scan finds the least expected time, and grows with cost and mean time") {
  for (const double mtbf : {1800.0, 11124.0, 86400.0}) {
    double before = 0;
    for (const double cost : {0.5, 7.0, 61.0}) {
      double least = 1e300, at = 0;
      for (double interval = 1; interval < mtbf; interval *= 1.001)
        if (const double s = expected_s(1, interval, cost, mtbf); s < least) least = s, at = interval;
      const double best = optimal_interval_s(cost, mtbf);
      CHECK(best == doctest::Approx(at).epsilon(0.01));
      CHECK(best > before);
      CHECK(optimal_interval_s(cost, 1.5 * mtbf) > best);
      CHECK(best < young_interval_s(cost, mtbf));
      before = best;
    }
  }
}

TEST_CASE("steps: at least one, and not before the save before has ended") {
  CHECK(optimal_interval_steps({.cost_s = 300, .background_s = 1, .mtbf_s = 86400, .step_s = 2}) ==
        std::llround(optimal_interval_s(300, 86400) / 2));
  CHECK(optimal_interval_steps({.cost_s = 0, .background_s = 0, .mtbf_s = 10, .step_s = 5}) == 1);
  CHECK(optimal_interval_steps({.cost_s = 0, .background_s = 31, .mtbf_s = 10, .step_s = 2}) == 17);
  CHECK(optimal_interval_steps({.cost_s = 1, .background_s = 1, .mtbf_s = 1e30, .step_s = 1e-9}) == 1000000000000000);
}
