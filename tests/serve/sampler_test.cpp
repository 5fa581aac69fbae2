#include "libcore/serve/sampler.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>

#include "libcore/base/error.h"

using namespace rw;

namespace {
const std::vector<float> kLogits = {1.0f, 3.0f, 2.0f, -40.0f, 3.0f, 0.5f};

std::map<int32_t, int> draw(const SamplingParams& params, int n) {
  Sampler sampler;
  std::map<int32_t, int> counts;
  for (int i = 0; i < n; ++i) ++counts[sampler.sample(kLogits.data(), static_cast<int64_t>(kLogits.size()), params, i)];
  return counts;
}
}  // namespace

TEST_CASE("greedy takes the lowest id among the largest") {
  CHECK(draw({.temperature = 0}, 3) == std::map<int32_t, int>{{1, 3}});
}

TEST_CASE("draws follow the softmax at the temperature") {
  constexpr int n = 40000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto counts = draw({.temperature = temperature, .seed = 4}, n);
    double total = 0;
    for (const float z : kLogits) total += std::exp(static_cast<double>(z) / temperature);
    for (size_t i = 0; i < kLogits.size(); ++i) {
      const double p = std::exp(static_cast<double>(kLogits[i]) / temperature) / total;
      const auto it = counts.find(static_cast<int32_t>(i));
      const double seen = it == counts.end() ? 0 : it->second;
      CHECK(std::abs(seen - n * p) <= 5 * std::sqrt(n * p * (1 - p)) + 1);  // five standard deviations
    }
  }
}

TEST_CASE("top-k and top-p keep the heaviest and renormalise") {
  CHECK(draw({.temperature = 1, .top_k = 1}, 50) == std::map<int32_t, int>{{1, 50}});
  const auto two = draw({.temperature = 1, .top_k = 2}, 4000);
  CHECK(two.size() == 2);
  CHECK(std::abs(two.at(1) - 2000) < 200);
  CHECK(two.count(4) == 1);
  // Shares: 1 and 4 have 0.375 each, 2 has 0.138: 0.7 needs the first two, 0.8 three of them.
  CHECK(draw({.temperature = 1, .top_p = 0.7}, 2000).size() == 2);
  CHECK(draw({.temperature = 1, .top_p = 0.8}, 2000).size() == 3);
  CHECK(draw({.temperature = 1, .top_p = 1e-9}, 50) == std::map<int32_t, int>{{1, 50}});
}

TEST_CASE("logits that are not finite are an error, not a token") {
  Sampler sampler;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const SamplingParams& params :
         {SamplingParams{.temperature = 0}, SamplingParams{}, SamplingParams{.top_p = 0.5}}) {
      std::vector<float> logits = kLogits;
      logits[2] = bad;
      CHECK_THROWS_AS(sampler.sample(logits.data(), 6, params, 0), Error);
    }
}

TEST_CASE("a draw depends on seed and position only") {
  Sampler a, b;
  const SamplingParams params{.temperature = 1, .seed = 11};
  b.sample(kLogits.data(), 6, params, 99);
  bool varies = false;
  for (int64_t position = 0; position < 50; ++position) {
    const int32_t id = a.sample(kLogits.data(), 6, params, position);
    CHECK(id == b.sample(kLogits.data(), 6, params, position));
    varies = varies || id != a.sample(kLogits.data(), 6, params, position + 1);
  }
  CHECK(varies);
}
