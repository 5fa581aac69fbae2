// What the sampler finds out about one row's columns on a rank.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "libcore/serve/sampler_lanes.h"

namespace rw {

inline int64_t blocks_of(int64_t n, int64_t block) { return (n + block - 1) / block; }

// A row's logits and the maxima of their blocks.
struct RowScan {
  std::span<const float> z;      // (V of this rank)
  std::vector<float> block_max;  // (V / kMaxBlock, up)
  float max = 0;                 // -inf when there are no columns
  bool finite = true;            // neither NaN nor +inf anywhere
  void scan(std::span<const float> logits);
  int64_t arg_max() const;  // the lowest column that has max; 0 when there are none
};

// A token's weight is exp((z - max) * inv_t): 1 for the largest logit, 0 for -inf and what is far below.
struct Weigh {
  float max, inv_t;
  Weigh(float largest, double temperature);
  double operator()(float z) const;
};

struct TokenLogit {
  float z;
  int32_t id;
};
// Likelier first, ties by id.
inline bool before(const TokenLogit& a, const TokenLogit& b) { return a.z != b.z ? a.z > b.z : a.id < b.id; }

// The best min(k, n) columns in order; ids count from first_id.
void best_columns(const RowScan& row, int64_t k, int32_t first_id, std::vector<TokenLogit>& best);

// Columns of lo <= logit < hi: the first n of these are their logits and numbers, rising.
struct Columns {
  std::vector<float> z;
  std::vector<int32_t> column;
  int64_t n = 0;
  void collect(const RowScan& row, float lo, float hi);
  void narrow(float lo, float hi);
};

// Where a set of likeliest tokens ends: it holds those above z and the first `ties` (by id) of those at z.
struct Cut {
  float z;
  int64_t ties;
};

// The column at which the weights of the columns within the cut, added in order, exceed target; the last one within the
// cut when they do not; -1 when there is none. block_sum: LaneOps::sums' when the cut excludes nothing; else null.
int64_t find_column(const RowScan& row, const Weigh& weigh, const Cut& cut, double target, const double* block_sum);

}  // namespace rw
