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

TEST_CASE("steps: at least one, and not before the save before has ended") {
  CHECK(optimal_interval_steps({.cost_s = 300, .background_s = 1, .mtbf_s = 86400, .step_s = 2}) ==
        std::llround(optimal_interval_s(300, 86400) / 2));
  CHECK(optimal_interval_steps({.cost_s = 0, .background_s = 0, .mtbf_s = 10, .step_s = 5}) == 1);
  CHECK(optimal_interval_steps({.cost_s = 0, .background_s = 31, .mtbf_s = 10, .step_s = 2}) == 17);
  CHECK(optimal_interval_steps({.cost_s = 1, .background_s = 1, .mtbf_s = 1e30, .step_s = 1e-9}) == 1000000000000000);
}
