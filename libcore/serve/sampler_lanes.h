// The sampler's loops over a row of logits, built once for each instruction set. z (n) everywhere; -inf is allowed. A
// weight is exp((z - max) * inv_t), 0 where that exponent is below kLeastExponent.
#pragma once
#include <cstdint>

namespace rw {

constexpr int64_t kMaxBlock = 32;   // columns to a maximum
constexpr int64_t kSumBlock = 256;  // columns to a sum
constexpr int64_t kProbes = 16;
constexpr float kLeastExponent = -87.33f;

// How much of a row lies at or above a logit.
struct Probe {
  double mass;  // sum of weights
  int64_t count;
};

struct LaneOps {
  // The largest (-inf when n is 0), and each block's; false where NaN or +inf is among them.
  bool (*maxima)(const float* z, int64_t n, float* max, float* block_max);
  // Sum of the weights, and each block's. Lanes in f32 within a block, f64 across blocks.
  double (*sums)(const float* z, int64_t n, float max, float inv_t, double* block_sum);
  // The same of one block's columns that are at or above `from`; their weights in w, zeros elsewhere. n <= kSumBlock.
  double (*kept)(const float* z, int64_t n, float max, float inv_t, float from, float* w);
  // probe[k] of the columns at or above at[k], which is finite.
  void (*probe)(const float* z, int64_t n, float max, float inv_t, const float (&at)[kProbes], Probe (&probe)[kProbes]);
};
const LaneOps& lane_ops();  // this machine's

}  // namespace rw
