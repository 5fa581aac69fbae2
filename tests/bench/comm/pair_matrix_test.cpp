// Pairs of ranks: the tournament, what is slow beside the others, times of ranks that are threads.
#include "libcore/bench/comm/pair_matrix.h"

#include <doctest/doctest.h>

#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

using namespace rw;

TEST_CASE("a tournament: every pair once, nobody twice in a round") {
  for (int n = 1; n <= 17; ++n) {
    CAPTURE(n);
    const auto rounds = pair_rounds(n);
    CHECK(rounds.size() == static_cast<size_t>(n == 1 ? 1 : n + n % 2 - 1));
    std::set<RankPair> seen;
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        CHECK(a < b);
        CHECK(a >= 0);
        CHECK(b < n);
        CHECK(busy.insert(a).second);
        CHECK(busy.insert(b).second);
        CHECK(seen.insert({a, b}).second);
      }
      CHECK(round.size() == static_cast<size_t>(n / 2));
    }
    CHECK(seen.size() == static_cast<size_t>(n * (n - 1) / 2));
  }
}

static PairSpeed speed(int a, int b, bool same, double us, double gb_s) {
  PairSpeed p{.a = a, .b = b, .latencies_us = {}, .times_us = {}};
  p.same_node = same, p.latency_us = us, p.gb_s = gb_s;
  return p;
}

TEST_CASE("outliers are judged beside their own kind of link") {
  // Two nodes of two ranks: within them 1 us and 10 GB/s, between them 5 us and 1 GB/s, but for 1-3.
  std::vector<PairSpeed> pairs = {speed(0, 1, true, 1, 10), speed(0, 2, false, 5, 1),    speed(0, 3, false, 5, 1),
                                  speed(1, 2, false, 5, 1), speed(1, 3, false, 5, 0.33), speed(2, 3, true, 1, 10)};
  auto found = pair_outliers(pairs);
  REQUIRE(found.size() == 1);
  CHECK(found[0].pair.a == 1);
  CHECK(found[0].pair.b == 3);
  CHECK(found[0].is_slow);
  CHECK_FALSE(found[0].is_late);
  CHECK(found[0].bandwidth_ratio == doctest::Approx(0.33));
  pairs[4].gb_s = 0.81, pairs[1].latency_us = 6.5;  // 81 % is within; 1.3 times the latency is not
  found = pair_outliers(pairs);
  REQUIRE(found.size() == 1);
  CHECK(found[0].pair.b == 2);
  CHECK(found[0].is_late);
  CHECK_FALSE(found[0].is_slow);
  CHECK(pair_outliers({}).empty());
  CHECK(pair_outliers({speed(0, 1, true, 9, 1)}).empty());

  const PairReport report{.pairs = pairs, .hosts = {"h1", "h1", "h2", "h3"}, .at_once = true, .bytes = 4096};
  const std::string text = pair_text(report);
  CHECK(text.find("at the same time") != std::string::npos);
  CHECK(text.find("# late: ranks 0 (h1) and 2 (h2): 1.30 times") != std::string::npos);
  CHECK(text.find("slow") == std::string::npos);
  const Json json = pair_json(report);
  CHECK(json["order"] == "rounds");
  CHECK(json["pairs"].size() == 6);
  CHECK(json["outliers"][0]["hosts"] == Json({"h1", "h2"}));
}

TEST_CASE("measured between threads: the same on all ranks, alone and in rounds") {
  for (const bool at_once : {false, true})
    for (const int ranks : {1, 2, 5}) {
      std::mutex mutex;
      std::vector<std::vector<PairSpeed>> of_rank;
      run_thread_ranks(
          ranks,
          [&](Comm& comm) {
            auto pairs = measure_pairs({.comm = comm, .at_once = at_once, .bytes = 3000, .samples = 3});
            const std::lock_guard lock(mutex);
            of_rank.push_back(std::move(pairs));
          },
          2);
      for (const auto& pairs : of_rank) {
        REQUIRE(pairs.size() == static_cast<size_t>(ranks * (ranks - 1) / 2));
        for (size_t i = 0; i < pairs.size(); ++i) {
          CHECK(pairs[i].latency_us > 0);
          CHECK(pairs[i].latency_us == of_rank[0][i].latency_us);
          CHECK(pairs[i].gb_s == of_rank[0][i].gb_s);
          CHECK(pairs[i].same_node == (pairs[i].a / 2 == pairs[i].b / 2));
          CHECK(pairs[i].times_us.size() == 3);
        }
      }
    }
}
