#include "libcore/base/rng.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <vector>

using namespace rw;

TEST_CASE("philox4x32-10 gives the known answers of Salmon et al.") {
  using A4 = std::array<uint32_t, 4>;
  CHECK(philox4x32({0, 0, 0, 0}, {0, 0}) == A4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr uint32_t f = 0xffffffff;
  CHECK(philox4x32({f, f, f, f}, {f, f}) == A4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        A4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("normal numbers have mean 0 and the asked deviation, and do not depend on how they are cut") {
  constexpr int64_t n = 100001;
  std::vector<float> all(n);
  const uint64_t key = rng_key(7, "init/x");
  fill_normal(all.data(), n, 0.5f, key, 0);
  double sum = 0, squares = 0, fourth = 0;
  for (const float x : all) {
    const double d = static_cast<double>(x);
    sum += d;
    squares += d * d;
    fourth += d * d * d * d;
  }
  // Standard errors: std/sqrt(n) of the mean, var*sqrt(2/n) of the variance, sqrt(96/n)*std^4 of the fourth moment; 5
  // of each.
  CHECK(std::abs(sum / n) < 5 * 0.5 / std::sqrt(n));
  CHECK(std::abs(squares / n - 0.25) < 5 * 0.25 * std::sqrt(2.0 / n));
  CHECK(std::abs(fourth / n - 3 * 0.0625) < 5 * 0.0625 * std::sqrt(96.0 / n));
  for (const int64_t cut : {1, 2, 3, 17, 50000, 99999}) {
    std::vector<float> part(static_cast<size_t>(n - cut));
    fill_normal(part.data(), n - cut, 0.5f, key, static_cast<uint64_t>(cut));
    CHECK(std::equal(part.begin(), part.end(), all.begin() + cut));
  }
}

TEST_CASE("keys differ by seed and by purpose") {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 100; ++seed)
    for (const char* purpose : {"order", "init/a", "init/b", ""}) keys.insert(rng_key(seed, purpose));
  CHECK(keys.size() == 400);
}

TEST_CASE("a permutation visits every value once and differs by key") {
  for (const uint64_t n : {1, 2, 3, 4, 5, 16, 17, 1000, 65537}) {
    const Permutation p(n, 42), q(n, 43);
    std::vector<char> seen(n, 0);
    uint64_t same = 0, fixed = 0;
    for (uint64_t i = 0; i < n; ++i) {
      const uint64_t value = p(i);
      REQUIRE(value < n);
      CHECK(seen[value] == 0);
      seen[value] = 1;
      same += value == q(i);
      fixed += value == i;
    }
    if (n >= 1000) {
      CHECK(same < 20);  // a random pair of permutations agrees in about one place
      CHECK(fixed < 20);
    }
  }
}
