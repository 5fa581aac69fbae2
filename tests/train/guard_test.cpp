// What the guard calls a spike, what it asks for, and that it comes back from a checkpoint as it was.
#include "libcore/train/guard.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/rng.h"

using namespace rw;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

double uniform(uint64_t seed, uint64_t i) {
  return static_cast<double>(random_bits(rng_key(seed, "guard test"), i) >> 11) * 0x1p-53;
}
// Box and Muller.
double gaussian(uint64_t seed, uint64_t i) {
  return std::sqrt(-2 * std::log(1 - uniform(seed, 2 * i))) * std::cos(2 * M_PI * uniform(seed, 2 * i + 1));
}

// A run as they go: the loss falls, the norm falls more and has heavy tails.
double loss_at(uint64_t seed, int64_t step) {
  return 2 + 8 * std::exp(-static_cast<double>(step) / 150) + 0.03 * gaussian(seed, static_cast<uint64_t>(step));
}
double norm_at(uint64_t seed, int64_t step) {
  return (0.5 + 3 * std::exp(-static_cast<double>(step) / 100)) *
         std::exp(0.25 * gaussian(seed + 1000, static_cast<uint64_t>(step)));
}

Guard guard_after(int64_t steps, const GuardSettings& settings) {
  Guard guard(settings);
  for (int64_t s = 0; s < steps; ++s) CHECK(guard.observe(s, loss_at(1, s), norm_at(1, s)).verdict == Verdict::ok);
  return guard;
}

}  // namespace

TEST_CASE("a run that goes well raises no alarm") {
  int64_t alarms = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Guard guard({});
    for (int64_t s = 0; s < 2000; ++s)
      if (guard.observe(s, loss_at(seed, s), norm_at(seed, s)).verdict != Verdict::ok) ++alarms;
  }
  CHECK(alarms == 0);
}

TEST_CASE("the deviations are those of the definition") {
  Guard guard({.policy = SpikePolicy::warn, .threshold = 5});
  // 21 values 2.0, 2.1, ..., 4.0: median 3, median absolute deviation 0.5.
  for (int i = 0; i <= 20; ++i) guard.observe(i, 2.0 + 0.1 * i, 1);
  const GuardReport just_below = Guard(guard).observe(21, 3 + 4.999 * 1.4826 * 0.5, 1);
  CHECK(just_below.verdict == Verdict::ok);
  CHECK(just_below.median == doctest::Approx(3));
  CHECK(just_below.deviations == doctest::Approx(4.999));
  const GuardReport above = Guard(guard).observe(21, 3 + 5.001 * 1.4826 * 0.5, 1);
  CHECK(above.verdict == Verdict::loss_spike);
  CHECK(above.deviations == doctest::Approx(5.001));
  CHECK(above.step == 21);
  CHECK(above.value == doctest::Approx(3 + 5.001 * 1.4826 * 0.5));
  // An even number: the median lies between the two in the middle.
  guard.observe(21, 3.5, 1);
  CHECK(Guard(guard).observe(22, 3, 1).median == doctest::Approx(3.05));
}

TEST_CASE("policies") {
  struct Case {
    SpikePolicy policy;
    GuardAction on_loss, on_norm;
  };
  for (const Case& c : {Case{SpikePolicy::warn, GuardAction::warn, GuardAction::warn},
                        Case{SpikePolicy::skip, GuardAction::skip, GuardAction::skip},
                        Case{SpikePolicy::rewind, GuardAction::rewind, GuardAction::skip}}) {
    const Guard guard = guard_after(200, {.policy = c.policy});
    const GuardReport loss = Guard(guard).observe(200, 20, 0.9);
    CHECK(loss.verdict == Verdict::loss_spike);
    CHECK(loss.action == c.on_loss);
    const GuardReport norm = Guard(guard).observe(200, loss_at(1, 200), 100);
    CHECK(norm.verdict == Verdict::norm_spike);
    CHECK(norm.action == c.on_norm);
    CHECK(norm.value == 100);
    CHECK(norm.deviations > 8);
    CHECK(Guard(guard).observe(200, 20, 100).verdict == Verdict::loss_spike);
    for (const auto& [l, n] : {std::pair{kNan, 1.0}, {kInf, 1.0}, {-kInf, 1.0}, {2.0, kNan}, {2.0, kInf}}) {
      const GuardReport bad = Guard(guard).observe(200, l, n);
      CHECK(bad.verdict == Verdict::not_finite);
      CHECK(bad.action == GuardAction::skip);
    }
    const GuardReport fine = Guard(guard).observe(200, loss_at(1, 200), norm_at(1, 200));
    CHECK(fine.verdict == Verdict::ok);
    CHECK(fine.action == GuardAction::go_on);
  }
}

TEST_CASE("a fall is no spike") {
  Guard guard = guard_after(200, {});
  CHECK(guard.observe(200, 0.1, 1e-9).verdict == Verdict::ok);
}

TEST_CASE("nothing is judged before there is something to judge by, but for what is not finite") {
  Guard guard({});
  for (size_t i = 0; i < Guard::kWarmUp; ++i) {
    CHECK(Guard(guard).observe(0, 1e6, 1e6).verdict == Verdict::ok);
    CHECK(Guard(guard).observe(0, kNan, 1).verdict == Verdict::not_finite);
    CHECK(guard.observe(static_cast<int64_t>(i), 3, 1).deviations == 0);
  }
  CHECK(guard.observe(20, 1e6, 1).verdict == Verdict::loss_spike);
}

TEST_CASE("a spike leaves no trace in the window") {
  Guard with = guard_after(150, {}), without = with;
  CHECK(with.observe(150, 50, 1).verdict == Verdict::loss_spike);
  CHECK(with.observe(151, kNan, 1).verdict == Verdict::not_finite);
  CHECK(with.observe(152, 3, 1e9).verdict == Verdict::norm_spike);
  const Json a = with.state(), b = without.state();
  CHECK(a["losses"] == b["losses"]);
  CHECK(a["log_norms"] == b["log_norms"]);
}

TEST_CASE("the window forgets: a run is judged by its last 64 good steps") {
  Guard guard({});
  for (int64_t s = 0; s < 500; ++s) guard.observe(s, 100 - 0.19 * static_cast<double>(s), 1);
  CHECK(guard.state()["losses"].size() == Guard::kWindow);
  CHECK(guard.observe(500, 99, 1).verdict == Verdict::loss_spike);  // where it began
}

TEST_CASE("a level that stays is a new level") {
  Guard guard = guard_after(600, {.policy = SpikePolicy::skip});
  for (int64_t i = 0; i < Guard::kNewLevel; ++i)
    CHECK(guard.observe(600 + i, 9 + 0.01 * static_cast<double>(i % 3), 1).verdict == Verdict::loss_spike);
  for (int64_t i = 0; i < 100; ++i)
    CHECK(guard.observe(620 + i, 9 + 0.01 * static_cast<double>(i % 3), 1).verdict == Verdict::ok);
  CHECK(guard.observe(720, 20, 1).verdict == Verdict::loss_spike);
}

TEST_CASE("values that never change have a deviation still") {
  Guard guard({.policy = SpikePolicy::warn, .threshold = 8});
  for (int64_t s = 0; s < 50; ++s) guard.observe(s, 2, 3);
  CHECK(Guard(guard).observe(50, 2 * (1 + 7.9 * Guard::kLossRelativeFloor), 3).verdict == Verdict::ok);
  CHECK(Guard(guard).observe(50, 2 * (1 + 8.1 * Guard::kLossRelativeFloor), 3).verdict == Verdict::loss_spike);
  CHECK(Guard(guard).observe(50, 2, 3 * std::exp(7.9 * Guard::kLogNormFloor)).verdict == Verdict::ok);
  const GuardReport norm = Guard(guard).observe(50, 2, 3 * std::exp(8.1 * Guard::kLogNormFloor));
  CHECK(norm.verdict == Verdict::norm_spike);
  CHECK(norm.median == doctest::Approx(3));
  CHECK(norm.deviations == doctest::Approx(8.1));
  Guard zero({.policy = SpikePolicy::warn, .threshold = 8});
  for (int64_t s = 0; s < 50; ++s) zero.observe(s, 0, 0);
  CHECK(Guard(zero).observe(50, 7.9 * Guard::kLossFloor, 0).verdict == Verdict::ok);
  CHECK(Guard(zero).observe(50, 8.1 * Guard::kLossFloor, 0).verdict == Verdict::loss_spike);
  CHECK(Guard(zero).observe(50, 0, Guard::kLeastNorm).verdict == Verdict::ok);
  CHECK(Guard(zero).observe(50, 0, 2 * Guard::kLeastNorm).verdict == Verdict::norm_spike);
}

TEST_CASE("a threshold of 0 turns spikes off, not the check for finite values") {
  Guard guard = guard_after(100, {.policy = SpikePolicy::rewind, .threshold = 0});
  CHECK(guard.observe(100, 1e9, 1e9).verdict == Verdict::ok);
  CHECK(guard.observe(101, kInf, 1).verdict == Verdict::not_finite);
}

TEST_CASE("through a checkpoint it judges as if nothing had been") {
  for (const int64_t cut : {0, 5, 19, 20, 99, 100, 101, 230, 245}) {
    Guard whole({.policy = SpikePolicy::skip}), before(whole), after(whole);
    const auto loss = [](int64_t s) { return s >= 225 && s < 240 ? 30 + 0.1 * static_cast<double>(s) : loss_at(3, s); };
    for (int64_t s = 0; s < cut; ++s)
      before.observe(s, loss(s), norm_at(3, s)), whole.observe(s, loss(s), norm_at(3, s));
    after.restore(parse_json(before.state().dump(), "a checkpoint"), "a checkpoint");
    for (int64_t s = cut; s < 300; ++s) {
      const GuardReport a = whole.observe(s, loss(s), norm_at(3, s)), b = after.observe(s, loss(s), norm_at(3, s));
      CHECK(a.verdict == b.verdict);
      CHECK(a.deviations == b.deviations);
    }
    CHECK(whole.state() == after.state());
  }
}

TEST_CASE("states that are none are refused and change nothing") {
  Guard guard = guard_after(30, {});
  const Json before = guard.state();
  std::string long_list = "[0";
  for (size_t i = 0; i < Guard::kWindow; ++i) long_list += ",0";
  for (const std::string& bad :
       {std::string("{}"), std::string("[]"), std::string("null"), std::string(R"({"losses": [], "log_norms": []})"),
        std::string(R"({"losses": [1], "log_norms": [], "spikes_in_a_row": 0})"),
        std::string(R"({"losses": ["1"], "log_norms": [1], "spikes_in_a_row": 0})"),
        std::string(R"({"losses": [null], "log_norms": [1], "spikes_in_a_row": 0})"),
        std::string(R"({"losses": [1], "log_norms": [1], "spikes_in_a_row": -1})"),
        R"({"losses": )" + long_list + R"(], "log_norms": )" + long_list + R"(], "spikes_in_a_row": 0})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(guard.restore(parse_json(bad, "x"), "x"), Error);
    CHECK(guard.state() == before);
  }
}

TEST_CASE("names") {
  CHECK(spike_policy("warn") == SpikePolicy::warn);
  CHECK(spike_policy("skip") == SpikePolicy::skip);
  CHECK(spike_policy("rewind") == SpikePolicy::rewind);
  CHECK_THROWS_AS(spike_policy("ignore"), Error);
  CHECK(std::string(verdict_name(Verdict::loss_spike)) == "loss_spike");
  CHECK(std::string(verdict_name(Verdict::norm_spike)) == "norm_spike");
  CHECK(std::string(verdict_name(Verdict::not_finite)) == "not_finite");
  CHECK(std::string(verdict_name(Verdict::ok)) == "ok");
}
