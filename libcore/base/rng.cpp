#include "libcore/base/rng.h"

#include <cmath>
#include <numbers>

#include "libcore/base/check.h"
#include "libcore/base/hash.h"

namespace rw {
namespace {

std::array<uint32_t, 4> block(uint64_t key, uint64_t counter) {
  return philox4x32({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0},
                    {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
}

// 53 random bits in (0, 1]: a logarithm of it is finite.
double unit_interval(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 11;
  return (static_cast<double>(bits) + 1.0) * 0x1.0p-53;
}

uint64_t mix(uint64_t x) {  // the finalizer of splitmix64 (Steele et al. 2014)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}

uint64_t rng_key(uint64_t seed, std::string_view purpose) { return hash64(purpose, mix(seed + 0x9E3779B97F4A7C15u)); }

uint64_t random_bits(uint64_t key, uint64_t counter) {
  const auto b = block(key, counter);
  return uint64_t{b[1]} << 32 | b[0];
}

double random_uniform(uint64_t key, uint64_t counter) {
  return static_cast<double>(random_bits(key, counter) >> 11) * 0x1.0p-53;
}

void fill_normal(float* dst, int64_t n, float std, uint64_t key, uint64_t first) {
  uint64_t have = ~uint64_t{0};
  double pair[2] = {0, 0};
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    if (const uint64_t want = index / 2; want != have) {
      const auto b = block(key, want);
      const double radius = std::sqrt(-2.0 * std::log(unit_interval(b[0], b[1])));
      const double angle = 2.0 * std::numbers::pi * unit_interval(b[2], b[3]);
      pair[0] = radius * std::cos(angle);
      pair[1] = radius * std::sin(angle);
      have = want;
    }
    dst[i] = static_cast<float>(pair[index % 2]) * std;
  }
}

Permutation::Permutation(uint64_t n, uint64_t key) : n_(n), key_(key), half_bits_(1) {
  CHECK(n <= uint64_t{1} << 62, "n = %llu", static_cast<unsigned long long>(n));
  while (uint64_t{1} << (2 * half_bits_) < n) ++half_bits_;
}

uint64_t Permutation::operator()(uint64_t i) const {
  CHECK(i < n_, "position %llu of %llu", static_cast<unsigned long long>(i), static_cast<unsigned long long>(n_));
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t value = i;
  do {
    uint64_t left = value >> half_bits_, right = value & mask;
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t f = mix(right + key_ + round * 0x9E3779B97F4A7C15u) & mask;
      const uint64_t old_left = left;
      left = right;
      right = old_left ^ f;
    }
    value = left << half_bits_ | right;
  } while (value >= n_);
  return value;
}

}  // namespace rw
