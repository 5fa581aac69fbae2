#include "libcore/data/data_order.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "tests/data/scratch.h"

using namespace rw;

namespace {
struct Range {
  int64_t begin, end, seq_len;
};
}  // namespace

TEST_CASE("an epoch visits every sample once, without overlap, inside the range; epochs differ") {
  const Scratch scratch;
  const auto file = counting_file(scratch / "t.h5", 5003);
  for (const auto& [begin, end, seq_len] : std::vector<Range>{{0, 5003, 7},
                                                              {11, 4001, 13},
                                                              {100, 117, 8},
                                                              {0, 2, 1},
                                                              {5, 16, 10},
                                                              {0, 100, 10},
                                                              {0, 101, 10},
                                                              {3, 5003, 4999},
                                                              {0, 5003, 1}}) {
    CAPTURE(begin);
    CAPTURE(end);
    CAPTURE(seq_len);
    const DataOrder order({{file, begin, end}}, seq_len, 42);
    const int64_t n = order.samples_per_epoch(0);
    CHECK(n >= 1);
    CHECK(n >= (end - begin) / seq_len - 1);
    std::vector<int32_t> input(static_cast<size_t>(seq_len)), target(input.size());
    std::set<std::vector<int64_t>> orders;
    std::set<int64_t> starts;
    for (int64_t epoch = 0; epoch < 4; ++epoch) {
      std::set<int64_t> seen;
      std::vector<int64_t> firsts;
      for (int64_t i = 0; i < n; ++i) {
        const DataOrder::Place place = order.place(epoch * n + i);
        CHECK(place.part == 0);
        CHECK(place.epoch == epoch);
        order.read(epoch * n + i, input.data(), target.data());
        for (int64_t j = 0; j < seq_len; ++j) {
          REQUIRE(input[static_cast<size_t>(j)] == place.first_token + j);  // a token is its position
          REQUIRE(target[static_cast<size_t>(j)] == place.first_token + j + 1);
          REQUIRE(seen.insert(input[static_cast<size_t>(j)]).second);
        }
        firsts.push_back(place.first_token);
      }
      CHECK(*seen.begin() >= begin);
      CHECK(*seen.rbegin() + 1 < end);
      CHECK(*seen.rbegin() - *seen.begin() + 1 == n * seq_len);  // a whole stretch, no hole
      starts.insert(*seen.begin());
      orders.insert(firsts);
    }
    if (n > 10) CHECK(orders.size() == 4);
    if (seq_len > 5 && n > 10) CHECK(starts.size() > 1);
  }
}

TEST_CASE("over many epochs the shuffle is fair") {
  const Scratch scratch;
  const auto file = counting_file(scratch / "t.h5", 101);
  const DataOrder order({{file, 0, 101}}, 10, 1);
  const int64_t n = order.samples_per_epoch(0), epochs = 3000;
  REQUIRE(n == 9);
  std::vector<int64_t> count(static_cast<size_t>(n * n), 0), slack(11, 0);
  for (int64_t e = 0; e < epochs; ++e) {
    int64_t lowest = 1000;
    for (int64_t i = 0; i < n; ++i) lowest = std::min(lowest, order.place(e * n + i).first_token);
    REQUIRE(lowest <= 10);
    ++slack[static_cast<size_t>(lowest)];
    for (int64_t i = 0; i < n; ++i)
      ++count[static_cast<size_t>(i * n + (order.place(e * n + i).first_token - lowest) / 10)];
  }
  // Five standard deviations of a binomial count.
  const auto near_share = [&](int64_t found, double p) {
    const double mean = static_cast<double>(epochs) * p;
    return std::abs(static_cast<double>(found) - mean) < 5 * std::sqrt(mean * (1 - p));
  };
  for (const int64_t c : count) CHECK(near_share(c, 1.0 / 9));
  for (const int64_t c : slack) CHECK(near_share(c, 1.0 / 11));
}

TEST_CASE("the order depends on nothing but seed and sample index") {
  const Scratch scratch;
  const auto a = counting_file(scratch / "a.h5", 999), b = counting_file(scratch / "b.h5", 313);
  const std::vector<DataPart> parts = {{a, 0, 999, 0.7}, {b, 5, 300, 0.3}};
  const DataOrder once(parts, 16, 7), again(parts, 16, 7), other(parts, 16, 8);
  std::vector<int32_t> x(16), y(16), z(16);
  bool any_differs = false;
  std::vector<uint64_t> digests;
  for (int64_t s = 0; s < 500; ++s) digests.push_back(once.read(s, x.data(), y.data()));
  // Any resume point, any way of dealing the samples out to ranks, in any order.
  for (const int64_t ranks : {1, 2, 4, 5})
    for (int64_t rank = ranks - 1; rank >= 0; --rank)
      for (int64_t s = 123 + rank; s < 500; s += ranks) {
        REQUIRE(again.read(s, x.data(), z.data()) == digests[static_cast<size_t>(s)]);
        any_differs = any_differs || other.read(s, x.data(), z.data()) != digests[static_cast<size_t>(s)];
      }
  CHECK(any_differs);
  CHECK(std::set<uint64_t>(digests.begin(), digests.begin() + 40).size() == 40);
}

TEST_CASE("each file of a blend runs through epochs of its own") {
  const Scratch scratch;
  const auto a = counting_file(scratch / "a.h5", 640), b = counting_file(scratch / "b.h5", 90);
  const DataOrder order({{a, 0, 640, 2.0}, {b, 0, 90, 1.0}}, 8, 3);
  std::map<std::pair<int64_t, int64_t>, std::set<int64_t>> seen;
  for (int64_t s = 0; s < 3000; ++s) {
    const auto [part, epoch, first] = order.place(s);
    CHECK(seen[{part, epoch}].insert(first).second);
  }
  for (const auto& [key, firsts] : seen) {
    const bool is_last = !seen.contains({key.first, key.second + 1});
    if (!is_last) CHECK(static_cast<int64_t>(firsts.size()) == order.samples_per_epoch(key.first));
  }
  CHECK(seen.contains({1, 90}));  // 1000 samples of b, 10 an epoch
}

TEST_CASE("blend shares: exact in every window, never a whole sample off inside one") {
  for (const auto& weights : std::vector<std::vector<double>>{{1},
                                                              {0.7, 0.3},
                                                              {1, 1},
                                                              {5, 3, 1, 1, 7},
                                                              {0.9999, 0.0001},
                                                              {1e9, 2e9, 4e9},
                                                              std::vector<double>(37, 1.0),
                                                              {0.5, 0.25, 0.125, 0.0625, 0.0625, 1e-4}}) {
    CAPTURE(weights.size());
    const Blend blend(weights);
    double total = 0;
    for (const double w : weights) total += w;
    std::vector<int64_t> had(weights.size(), 0);
    for (int64_t k = 0; k < 2 * kBlendWindow; ++k) {
      const Blend::Turn turn = blend.at(k);
      REQUIRE(turn.index == had[static_cast<size_t>(turn.source)]);  // no sample of a file skipped or given twice
      ++had[static_cast<size_t>(turn.source)];
      for (size_t s = 0; s < weights.size(); ++s) {
        const double share =
            static_cast<double>(blend.per_window(static_cast<int64_t>(s))) / static_cast<double>(kBlendWindow);
        REQUIRE(std::abs(static_cast<double>(had[s]) - share * static_cast<double>(k + 1)) < 1.0);
      }
      if ((k + 1) % kBlendWindow == 0)
        for (size_t s = 0; s < weights.size(); ++s) {
          const double windows = static_cast<double>((k + 1) / kBlendWindow);
          CHECK(std::abs(static_cast<double>(had[s]) -
                         windows * weights[s] / total * static_cast<double>(kBlendWindow)) < windows);
        }
    }
    const Blend::Turn far = blend.at(kBlendWindow * 1000003 + 17);
    CHECK(far.index == 1000003 * blend.per_window(far.source) + blend.at(17).index);
  }
  CHECK(contains(error_of([] { Blend({1.0, 1e-7}); }), "weight 1e-07"));
}

TEST_CASE("too little text says which file and both numbers") {
  const Scratch scratch;
  const auto file = counting_file(scratch / "t.h5", 50);
  CHECK(contains(error_of([&] {
                   DataOrder({{file, 0, 50}}, 50, 0);
                 }),
                 "t.h5: expected at least seq-len + 1 = 51 tokens to train on, found 50"));
  CHECK(error_of([&] { DataOrder({{file, 0, 50}}, 49, 0); }).empty());
  CHECK(contains(error_of([&] { DataSpan(file, 49, 50, 4); }), "found 1"));
  CHECK_THROWS_AS(DataOrder({{file, 0, 51}}, 4, 0), CheckFailed);
}

TEST_CASE("validation reads every target once, in order, and masks the tail") {
  const Scratch scratch;
  const auto file = counting_file(scratch / "t.h5", 100);
  for (const auto& [begin, end, seq_len] :
       std::vector<Range>{{0, 100, 7}, {3, 99, 1}, {10, 31, 10}, {10, 30, 10}, {98, 100, 64}}) {
    const DataSpan span(file, begin, end, seq_len);
    int64_t next = begin;
    for (int64_t s = 0; s < span.n_samples(); ++s) {
      std::vector<int32_t> input(static_cast<size_t>(seq_len), 77), target(input);
      span.read(s, input.data(), target.data());
      for (size_t j = 0; j < input.size(); ++j) {
        if (next + 1 < end) {
          CHECK(input[j] == next);
          CHECK(target[j] == next + 1);
          ++next;
        } else {
          CHECK(input[j] == 0);
          CHECK(target[j] == -1);
        }
      }
      CHECK(target[0] != -1);
    }
    CHECK(next == end - 1);
  }
}

TEST_CASE("weighted paths") {
  const auto parsed = [](const std::string& text) {
    const WeightedPath p = parse_weighted_path(text);
    return p.path + " " + std::to_string(p.weight);
  };
  CHECK(parsed("a.h5") == "a.h5 1.000000");
  CHECK(parsed("a.h5:0.7") == "a.h5 0.700000");
  CHECK(parsed("/x/a:b.h5:3") == "/x/a:b.h5 3.000000");
  CHECK(parsed("/x/a:b.h5") == "/x/a:b.h5 1.000000");
  for (const char* bad : {"a.h5:0", "a.h5:-1", "a.h5:0.7x", "a.h5:", "a.h5:inf", "a.h5:nan", ":1", "a.h5:1e999"}) {
    CAPTURE(bad);
    CHECK(contains(error_of([&] { parse_weighted_path(bad); }), "2 --data"));
  }
}
