// Counter-based random numbers: a value is a pure function of (key, counter), so it is the same in every layout and
// after every resume. Philox4x32-10 (Salmon et al. 2011).
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace rw {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A key from a seed and a purpose ("init/blocks.3.attn.q.weight", "order", "sample").
uint64_t rng_key(uint64_t seed, std::string_view purpose);
// The counter-th 64 random bits of a key.
uint64_t random_bits(uint64_t key, uint64_t counter);
// The counter-th uniform number in [0, 1).
double random_uniform(uint64_t key, uint64_t counter);
// dst[i] = std * normal number of counter first + i (Box-Muller over one Philox block per two elements), i in [0, n).
void fill_normal(float* dst, int64_t n, float std, uint64_t key, uint64_t first);

// A pure permutation of [0, n): position i -> value. A Feistel network over the next power of four with cycle walking;
// nothing is stored, so an epoch's shuffle costs nothing to set up.
class Permutation {
 public:
  Permutation(uint64_t n, uint64_t key);
  uint64_t operator()(uint64_t i) const;  // i < n

 private:
  uint64_t n_, key_;
  int half_bits_;
};

}  // namespace rw
