// Who is called slow, when, and who never is.
#include "libcore/train/straggler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <vector>

using namespace rw;

namespace {

// The ranks reported in each of `steps` equal steps.
std::vector<std::vector<int64_t>> reports(StragglerWatch& watch, const std::vector<double>& seconds, int steps) {
  std::vector<std::vector<int64_t>> all;
  for (int i = 0; i < steps; ++i) {
    all.emplace_back();
    for (const Straggler& s : watch.observe(seconds)) all.back().push_back(s.rank);
  }
  return all;
}

int64_t n_reports(StragglerWatch& watch, const std::vector<double>& seconds, int steps) {
  int64_t n = 0;
  for (const auto& step : reports(watch, seconds, steps)) n += static_cast<int64_t>(step.size());
  return n;
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("a rank 21 % above its peers' median is named at the 20th step, once") {
  StragglerWatch watch({0, 0, 0, 0});
  const auto all = reports(watch, {1, 1.21, 0.9, 1.05}, 100);
  for (size_t i = 0; i < all.size(); ++i) CHECK(all[i] == (i == 19 ? std::vector<int64_t>{1} : std::vector<int64_t>{}));
}

TEST_CASE("what is reported") {
  StragglerWatch watch({7, 7, 7});
  for (int i = 0; i < 19; ++i) CHECK(watch.observe(std::vector<double>{2, 1, 1.5}).empty());
  const std::vector<Straggler> found = watch.observe(std::vector<double>{3, 1, 1.5});
  REQUIRE(found.size() == 1);
  CHECK(found[0].rank == 0);
  CHECK(found[0].seconds == 3);
  CHECK(found[0].peers_s == doctest::Approx(1.25));  // of the other two
}

TEST_CASE("the slowest of a step is the one that took most against its own peers") {
  const StragglerWatch watch({7, 7, 7, 8, 8, 9});
  const Straggler s = watch.slowest(std::vector<double>{1, 1.5, 1.25, 30, 10, 99});
  CHECK(s.rank == 3);
  CHECK(s.seconds == 30);
  CHECK(s.peers_s == 10);
  CHECK(StragglerWatch({0, 1}).slowest(std::vector<double>{1, 2}).rank == -1);
  CHECK(watch.slowest(std::vector<double>{kNan, 1, 0, kInf, 2, 3}).rank == -1);
}

TEST_CASE("exactly 20 % is within the limit, and 19 steps are not 20") {
  StragglerWatch limit({0, 0, 0});
  CHECK(n_reports(limit, {1, 1.2, 1}, 50) == 0);
  StragglerWatch watch({0, 0, 0});
  for (int round = 0; round < 5; ++round) {
    CHECK(n_reports(watch, {1, 2, 1}, 19) == 0);
    CHECK(n_reports(watch, {1, 1, 1}, 1) == 0);
  }
}

TEST_CASE("a rank that recovered and is slow again is named again") {
  StragglerWatch watch({0, 0, 0});
  CHECK(n_reports(watch, {1, 1, 5}, 40) == 1);
  CHECK(n_reports(watch, {1, 1, 1}, 1) == 0);
  CHECK(n_reports(watch, {1, 1, 5}, 19) == 0);
  CHECK(n_reports(watch, {1, 1, 5}, 1) == 1);
}

TEST_CASE("of two ranks the slower is found: a rank is no peer of itself") {
  StragglerWatch watch({0, 0});
  const auto all = reports(watch, {1.3, 1}, 20);
  CHECK(all[19] == std::vector<int64_t>{0});
}

TEST_CASE("ranks are compared within their group only") {
  // Stage 1 has twice stage 0's layers; rank 5 is slow within it. The groups alternate and are not numbered from 0.
  StragglerWatch watch({10, -3, 10, -3, 10, -3});
  const auto all = reports(watch, {1, 2, 1, 2, 1, 2.5}, 20);
  CHECK(all[19] == std::vector<int64_t>{5});
  StragglerWatch alone({0, 1, 2});
  CHECK(n_reports(alone, {1, 100, 1}, 50) == 0);
}

TEST_CASE("several at once, in the order of their ranks, while most are well") {
  StragglerWatch watch(std::vector<int64_t>(101, 0));
  std::vector<double> seconds(101, 1.0);
  for (const size_t slow : {97u, 3u, 50u}) seconds[slow] = 1.5;
  CHECK(reports(watch, seconds, 20)[19] == std::vector<int64_t>{3, 50, 97});
}

TEST_CASE("times that are none count as well") {
  StragglerWatch watch({0, 0, 0, 0});
  CHECK(n_reports(watch, {1, kNan, kInf, 0}, 30) == 0);
  CHECK(n_reports(watch, {-1, -2, kNan, kNan}, 30) == 0);
  CHECK(n_reports(watch, {1, 2, kNan, -1}, 19) == 0);
  CHECK(n_reports(watch, {1, kNan, 1, 1}, 1) == 0);  // and break a row
  CHECK(n_reports(watch, {1, 2, 1, 1}, 19) == 0);
  CHECK(n_reports(watch, {1, 2, 1, 1}, 1) == 1);
}

TEST_CASE("sizes") {
  StragglerWatch none({});
  CHECK(none.observe({}).empty());
  StragglerWatch watch({0, 0});
  CHECK_THROWS(watch.observe(std::vector<double>{1}));
}
