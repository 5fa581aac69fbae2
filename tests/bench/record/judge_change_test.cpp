#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <random>

#include "libcore/bench/record/statistics.h"

using namespace rw;

namespace {

Change judge(const std::vector<double>& base, const std::vector<double>& now, bool paired = false, bool lower = true) {
  ChangeQuestion q;
  q.base = base;
  q.now = now;
  q.paired = paired;
  q.lower_is_better = lower;
  return judge_change(q);
}

std::vector<double> times(std::vector<double> v, double factor) {
  for (double& x : v) x *= factor;
  return v;
}

const std::vector<double> kBase = {10.1, 9.8, 10.4, 10.0, 9.9, 10.2, 9.7};
const std::vector<double> kSlow = {10.9, 10.5, 11.2, 10.6, 10.4, 11.0, 10.8};

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the ratio is the Hodges-Lehmann shift of logarithms (numpy: exp(median(subtract.outer(log b, log a))))") {
  CHECK(judge(kBase, kSlow).ratio == doctest::Approx(1.0769230769230766));
  // exp(median of (d_i + d_j) / 2, i <= j), d = log(b / a)
  CHECK(judge(kBase, kSlow, true).ratio == doctest::Approx(1.075117722856119));
}

TEST_CASE("worse, and better the other way round; direction of the metric") {
  const Change c = judge(kBase, kSlow);
  CHECK(c.verdict == ChangeVerdict::worse);
  CHECK(c.base == 10.0);
  CHECK(c.now == 10.8);
  CHECK(c.low > 1);
  CHECK(c.low < c.ratio);
  CHECK(c.high > c.ratio);
  CHECK(c.p_worse < 0.001);
  CHECK(judge(kSlow, kBase).verdict == ChangeVerdict::better);
  CHECK(judge(kSlow, kBase).p_worse > 0.999);
  const Change up = judge(kBase, kSlow, false, false);  // tokens/s that rose
  CHECK(up.verdict == ChangeVerdict::better);
  CHECK(up.ratio == doctest::Approx(1.0769230769230766));
  CHECK(up.low > 1);
  CHECK(up.low < up.high);
  CHECK(judge(kSlow, kBase, false, false).verdict == ChangeVerdict::worse);
  CHECK(judge(kBase, kSlow, true).verdict == ChangeVerdict::worse);
}

TEST_CASE("the unit and the size of the times do not matter; the seed decides the rest") {
  const Change a = judge(kBase, kSlow), b = judge(times(kBase, 1e-6), times(kSlow, 1e-6));
  CHECK(a.ratio == doctest::Approx(b.ratio).epsilon(1e-9));
  CHECK(a.low == doctest::Approx(b.low).epsilon(1e-9));
  CHECK(a.low == judge(kBase, kSlow).low);
  ChangeQuestion other;
  other.base = kBase;
  other.now = kSlow;
  other.seed = 2;
  CHECK(judge_change(other).p_worse != a.p_worse);
  CHECK(judge_change(other).low == doctest::Approx(a.low).epsilon(0.01));
}

TEST_CASE("of normal noise the bounds are Student's: 40 pairs, scipy.stats.t.interval(.9, 39, ...)") {
  // np.random.default_rng(3).normal(0, .03, 40) to 4 digits; t.interval of the logarithms: -0.01124 .. 0.00755
  const std::vector<double> ratios = {1.0612, 0.9233, 1.0125, 0.983,  0.9864, 0.9935, 0.9394, 0.993,  0.974,  1.0997,
                                      1.0068, 0.9894, 0.9916, 0.98,   0.9683, 0.9883, 1.0145, 0.9928, 1.0287, 0.994,
                                      1.0007, 1.0464, 1.0164, 0.9848, 0.9945, 1.0162, 1.0581, 0.9919, 0.9927, 1.0301,
                                      0.9734, 0.9912, 1.0265, 1.0174, 1.0027, 1.0201, 0.9152, 1.0306, 0.9712, 0.9499};
  const Change c = judge(std::vector<double>(40, 1.0), ratios, true);
  const double width = 0.00755 + 0.01124;
  CHECK(std::log(c.low) == doctest::Approx(-0.01124).epsilon(0.15 * width / 0.01124));
  CHECK(std::log(c.high) == doctest::Approx(0.00755).epsilon(0.25 * width / 0.00755));
  CHECK(std::log(c.high / c.low) == doctest::Approx(width).epsilon(0.15));
  CHECK(c.verdict == ChangeVerdict::same);
}

TEST_CASE("same: a change below the threshold, even a certain one") {
  const Change none = judge(kBase, {10.05, 9.85, 10.35, 10.02, 9.88, 10.15, 9.75});
  CHECK(none.verdict == ChangeVerdict::same);
  std::vector<double> base, now;
  for (int i = 0; i < 9; ++i) base.push_back(1 + 1e-4 * (i * 4 % 9)), now.push_back(1.02 + 1e-4 * (i * 5 % 9));
  const Change small = judge(base, now);
  CHECK(small.low > 1.01);
  CHECK(small.verdict == ChangeVerdict::same);
  CHECK(judge({2, 2, 2}, {2, 2, 2}).verdict == ChangeVerdict::same);
}

TEST_CASE("too noisy: the interval is wide, and why says how many samples would tell") {
  const Change c = judge({10, 14, 9, 12, 8}, {11, 9, 13, 15, 10});
  CHECK(c.verdict == ChangeVerdict::too_noisy);
  CHECK(holds(c.why, "samples a side would tell"));
}

TEST_CASE("few samples do not alarm: three a side do, four pairs do not") {
  CHECK(judge({1, 1.01, 1.02}, {1.2, 1.21, 1.22}).verdict == ChangeVerdict::worse);
  const Change pairs = judge({1, 1.01, 1.02, 1.0}, {1.2, 1.21, 1.22, 1.2}, true);
  CHECK(pairs.verdict == ChangeVerdict::too_noisy);
  CHECK(holds(pairs.why, "4 pairs cannot tell"));
  CHECK(judge({1, 1.01, 1.02, 1.0, 1.01}, {1.2, 1.21, 1.22, 1.2, 1.22}, true).verdict == ChangeVerdict::worse);
  for (const size_t n : {1, 2}) {
    const Change c = judge(std::vector<double>(n, 1), std::vector<double>(n, 2));
    CHECK(c.verdict == ChangeVerdict::too_noisy);
    CHECK(holds(c.why, n == 1 ? "1 sample of base" : "2 samples of base"));
    CHECK(c.ratio == 2);
    CHECK(std::isnan(c.low));
    CHECK(std::isnan(c.p_worse));
  }
}

TEST_CASE("a drift is no slowdown") {
  std::vector<double> base, now;
  for (int i = 0; i < 10; ++i)
    base.push_back(1 + 0.02 * i + 0.003 * (i * 7 % 10)), now.push_back(1.2 + 0.02 * i + 0.003 * (i * 3 % 10));
  const Change c = judge(base, now);
  CHECK(c.verdict == ChangeVerdict::too_noisy);
  CHECK(holds(c.why, "by turns"));
  // Taken by turns and told so, the drift falls out of the pairs.
  for (int i = 0; i < 10; ++i)
    base[i] = 1 + 0.04 * i + 0.004 * (i * 7 % 10), now[i] = 1.01 * (1 + 0.04 * i + 0.004 * (i * 3 % 10));
  CHECK(judge(base, now, true).verdict == ChangeVerdict::same);
}

TEST_CASE("samples that follow each other are joined, so that they count for less") {
  // 32 samples of 8 levels that last for 4: independent they would tell much.
  std::vector<double> base, now;
  const double levels[] = {1.0, 1.3, 0.9, 1.2, 1.1, 0.8, 1.25, 0.95};
  for (int i = 0; i < 32; ++i) base.push_back(levels[i / 4]), now.push_back(1.07 * levels[i / 4]);
  CHECK(judge(base, now).verdict == ChangeVerdict::too_noisy);
}

TEST_CASE("a wild sample does not decide") {
  std::vector<double> now = kBase;
  now[2] = 200;
  CHECK(judge(kBase, now).verdict != ChangeVerdict::worse);
  std::vector<double> base = kBase;
  base[4] = 0.001;
  CHECK(judge(base, kSlow).ratio == doctest::Approx(1.08).epsilon(0.02));
}

TEST_CASE("samples without a logarithm, missing ones, none at all") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const double bad : {0.0, -1.0, inf}) {
    const Change c = judge({1, 1, 1}, {1, bad, 1});
    CHECK(c.verdict == ChangeVerdict::too_noisy);
    CHECK(holds(c.why, "only positive samples"));
  }
  CHECK(judge({0, 0, 0}, {0, 0, 0}).verdict == ChangeVerdict::same);
  CHECK(holds(judge({}, {1, 2, 3}).why, "base has no samples"));
  CHECK(holds(judge({1, 2}, {nan, nan}).why, "new has no samples"));
  std::vector<double> base = kBase, now = kSlow;
  base.push_back(nan);
  now.push_back(5);
  const Change paired = judge(base, now, true);  // the pair is left out
  CHECK(paired.n_now == 7);
  CHECK(paired.ratio == doctest::Approx(1.075117722856119));
  CHECK(judge(base, kSlow).n_base == 7);
}

TEST_CASE("how often it errs: 10 pairs and 3 % of noise") {
  // 400 draws: deviations of the shares are 1 % (at 3 %) and 1.5 % (at 90 %); the benchmark draws more.
  std::mt19937_64 random(12);
  std::normal_distribution<double> normal;
  int false_alarms = 0, found = 0;
  constexpr int kTrials = 400;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> base, now;
    for (int i = 0; i < 10; ++i) base.push_back(1 + 0.03 * normal(random)), now.push_back(1 + 0.03 * normal(random));
    false_alarms += judge(base, now, true).verdict == ChangeVerdict::worse;
    found += judge(base, times(now, 1.05), true).verdict == ChangeVerdict::worse;
  }
  CHECK(false_alarms <= 0.05 * kTrials);
  CHECK(found >= 0.87 * kTrials);
}
