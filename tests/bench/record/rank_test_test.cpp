#include "libcore/bench/record/rank_test.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace rw;

namespace {

double mid_rank(const std::vector<double>& all, double v) {
  double below = 0, equal = 0;
  for (const double x : all) below += x < v, equal += x == v;
  return below + (equal + 1) / 2;
}

// By trying every choice of which values are `larger`.
double brute_mann_whitney(const std::vector<double>& smaller, const std::vector<double>& larger) {
  std::vector<double> all = larger;
  all.insert(all.end(), smaller.begin(), smaller.end());
  double seen = 0;
  for (const double v : larger) seen += mid_rank(all, v);
  int64_t ways = 0, as_high = 0;
  for (uint32_t mask = 0; mask < 1u << all.size(); ++mask) {
    if (static_cast<size_t>(__builtin_popcount(mask)) != larger.size()) continue;
    double sum = 0;
    for (size_t i = 0; i < all.size(); ++i)
      if ((mask >> i & 1) != 0) sum += mid_rank(all, all[i]);
    ++ways;
    as_high += sum >= seen - 1e-9;
  }
  return static_cast<double>(as_high) / static_cast<double>(ways);
}

double brute_signed_rank(std::vector<double> d) {
  std::erase(d, 0.0);
  std::vector<double> sizes;
  for (const double v : d) sizes.push_back(std::abs(v));
  const auto sum_of = [&](auto&& is_positive) {
    double sum = 0;
    for (size_t i = 0; i < d.size(); ++i)
      if (is_positive(i)) sum += mid_rank(sizes, sizes[i]);
    return sum;
  };
  const double seen = sum_of([&](size_t i) { return d[i] > 0; });
  int64_t as_high = 0;
  for (uint32_t mask = 0; mask < 1u << d.size(); ++mask)
    as_high += sum_of([&](size_t i) { return (mask >> i & 1) != 0; }) >= seen - 1e-9;
  return static_cast<double>(as_high) / static_cast<double>(1u << d.size());
}

}  // namespace

TEST_CASE("Mann-Whitney: scipy.stats.mannwhitneyu(method='exact', alternative='greater')") {
  const std::vector<double> a = {1.1, 2.2, 3.7, 0.4, 5.2}, b = {4.4, 6.1, 2.9, 7.7, 3.8, 8.0};
  CHECK(mann_whitney_p(a, b) == doctest::Approx(0.025974026));
  CHECK(mann_whitney_p(b, a) == doctest::Approx(0.984848485));
}

TEST_CASE("Mann-Whitney: apart altogether is one way of all; nothing says nothing") {
  CHECK(mann_whitney_p(std::vector<double>{1, 2, 3}, std::vector<double>{4, 5, 6}) == doctest::Approx(1.0 / 20));
  CHECK(mann_whitney_p(std::vector<double>{1, 2, 3, 4, 5}, std::vector<double>{6, 7, 8, 9, 10}) ==
        doctest::Approx(1.0 / 252));
  CHECK(mann_whitney_p(std::vector<double>{1}, std::vector<double>{2}) == doctest::Approx(0.5));
  CHECK(mann_whitney_p({}, std::vector<double>{2}) == 1);
  CHECK(mann_whitney_p(std::vector<double>{2, 2, 2}, std::vector<double>{2, 2}) == doctest::Approx(1));
}

TEST_CASE("Wilcoxon: the table's critical values at 5 %, one-sided (n: T) 5: 0, 6: 2, 8: 5, 10: 10, 13: 21") {
  // T is the sum of the ranks on the rarer side: at T the chance is at most 5 %, at T + 1 more.
  for (const auto& [n, critical] : {std::pair{5, 0}, {6, 2}, {8, 5}, {10, 10}, {13, 21}}) {
    const auto p_at = [n = n](int left) {
      std::vector<double> d;
      for (int rank = n; rank >= 1; --rank) {  // greedily, the largest first
        const bool is_negative = rank <= left;
        if (is_negative) left -= rank;
        d.push_back(is_negative ? -rank : rank);
      }
      return signed_rank_p(d);
    };
    CHECK(p_at(critical) <= 0.05);
    CHECK(p_at(critical + 1) > 0.05);
  }
}

TEST_CASE("Wilcoxon: scipy.stats.wilcoxon(mode='exact', alternative='greater')") {
  const std::vector<double> d = {1.83, -0.5, 1.1, 2.5, -0.7, 0.9, 1.7, 0.3, -0.2, 2.2};
  CHECK(signed_rank_p(d) == doctest::Approx(0.0244140625));
  CHECK(signed_rank_p(std::vector<double>{1, 2, 3, 4}) == doctest::Approx(1.0 / 16));
  CHECK(signed_rank_p(std::vector<double>{0, 0}) == 1);
}

TEST_CASE("both tests with ties, against trying every choice") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<double> a(1 + random() % 6), b(1 + random() % 6), d(1 + random() % 9);
    for (double& v : a) v = static_cast<double>(random() % 5);
    for (double& v : b) v = static_cast<double>(random() % 5);
    for (double& v : d) v = static_cast<double>(random() % 9) - 4;
    CHECK(mann_whitney_p(a, b) == doctest::Approx(brute_mann_whitney(a, b)));
    if (std::any_of(d.begin(), d.end(), [](double v) { return v != 0; }))
      CHECK(signed_rank_p(d) == doctest::Approx(brute_signed_rank(d)));
  }
}

TEST_CASE("many samples: scipy's asymptotic method with the corrections for ties and continuity") {
  std::vector<double> a, b, d;
  for (int i = 0; i < 40; ++i) a.push_back(i * 7 % 41), b.push_back(i * 11 % 43 + 3);
  for (int i = 0; i < 70; ++i) d.push_back(i * 29 % 71 - 30);
  CHECK(mann_whitney_p(a, b) == doctest::Approx(0.066005084).epsilon(1e-7));
  CHECK(signed_rank_p(d) == doctest::Approx(0.031685243).epsilon(1e-7));
}

TEST_CASE("serial score: independent draws, a drift, a see-saw") {
  // Bartels 1982, example: the ratio of ranks of a rising series of n is (n - 1) / (n (n^2 - 1) / 12).
  std::vector<double> rising, see_saw, random;
  for (int i = 0; i < 10; ++i) rising.push_back(i * i), see_saw.push_back(i % 2 == 0 ? i : -i);
  const double ratio = 9.0 / (10.0 * 99 / 12), variance = 4.0 * 8 * (500 - 20 - 9) / (5.0 * 10 * 11 * 81);
  CHECK(serial_score(rising) == doctest::Approx((2 - ratio) / std::sqrt(variance)));
  CHECK(serial_score(rising) > 3);
  CHECK(serial_score(see_saw) < -1);
  CHECK(serial_score(std::vector<double>{1, 2, 3, 4, 5, 6, 7}) == 0);
  CHECK(serial_score(std::vector<double>(9, 4.0)) == 0);
  std::mt19937 engine(3);
  int alarms = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    random.clear();
    for (int i = 0; i < 15; ++i) random.push_back(static_cast<double>(engine()));
    alarms += serial_score(random) > 2.326;
  }
  CHECK(alarms < 25);  // 1 %: 10 expected, 3.2 their deviation
}
