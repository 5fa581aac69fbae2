#include "libcore/serve/sampler_scan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "kernels/cpu/isa.h"

namespace rw {
namespace cpu_scalar {
extern const LaneOps sampler_lanes;
}
namespace cpu_avx2 {
extern const LaneOps sampler_lanes;
}
namespace cpu_avx512 {
extern const LaneOps sampler_lanes;
}

const LaneOps& lane_ops() {
  static const Isa isa = best_isa();
  return isa >= Isa::avx512 ? cpu_avx512::sampler_lanes
         : isa == Isa::avx2 ? cpu_avx2::sampler_lanes
                            : cpu_scalar::sampler_lanes;
}

void RowScan::scan(std::span<const float> logits) {
  z = logits;
  const int64_t n = static_cast<int64_t>(z.size());
  block_max.resize(static_cast<size_t>(blocks_of(n, kMaxBlock)));
  finite = lane_ops().maxima(z.data(), n, &max, block_max.data());
}

int64_t RowScan::arg_max() const {
  if (z.empty()) return 0;
  const auto block = std::find(block_max.begin(), block_max.end(), max);
  return std::find(z.begin() + (block - block_max.begin()) * kMaxBlock, z.end(), max) - z.begin();
}

// The bounds keep 0 * inf away; no request comes near them.
Weigh::Weigh(float largest, double temperature)
    : max(largest), inv_t(static_cast<float>(std::clamp(1 / temperature, 1e-30, 1e30))) {}

double Weigh::operator()(float z) const {
  const float x = (z - max) * inv_t;
  return x < kLeastExponent ? 0 : std::exp(static_cast<double>(x));
}

void best_columns(const RowScan& row, int64_t k, int32_t first_id, std::vector<TokenLogit>& best) {
  best.clear();
  if (k <= 0) return;
  // At least k columns reach the k-th largest block maximum: nothing below it is among the best k.
  float least = -std::numeric_limits<float>::infinity();
  if (static_cast<int64_t>(row.block_max.size()) > k) {
    std::vector<float> maxima = row.block_max;
    std::nth_element(maxima.begin(), maxima.begin() + (k - 1), maxima.end(), std::greater<>());
    least = maxima[static_cast<size_t>(k - 1)];
  }
  for (size_t b = 0; b < row.block_max.size(); ++b) {
    if (row.block_max[b] < least) continue;
    const size_t end = std::min(row.z.size(), (b + 1) * kMaxBlock);
    for (size_t i = b * kMaxBlock; i < end; ++i)
      if (row.z[i] >= least) best.push_back({.z = row.z[i], .id = first_id + static_cast<int32_t>(i)});
  }
  if (static_cast<int64_t>(best.size()) > k) {
    std::nth_element(best.begin(), best.begin() + k, best.end(), before);
    best.resize(static_cast<size_t>(k));
  }
  std::sort(best.begin(), best.end(), before);
}

// Without branches on the logits, which no predictor foresees.
void Columns::collect(const RowScan& row, float lo, float hi) {
  if (z.size() < row.z.size()) {
    z.resize(row.z.size());
    column.resize(row.z.size());
  }
  size_t found = 0;
  for (size_t b = 0; b < row.block_max.size(); ++b) {
    if (row.block_max[b] < lo) continue;
    const size_t end = std::min(row.z.size(), (b + 1) * kMaxBlock);
    for (size_t i = b * kMaxBlock; i < end; ++i) {
      z[found] = row.z[i];
      column[found] = static_cast<int32_t>(i);
      found += static_cast<size_t>(row.z[i] >= lo) & static_cast<size_t>(row.z[i] < hi);
    }
  }
  n = static_cast<int64_t>(found);
}

void Columns::narrow(float lo, float hi) {
  size_t found = 0;
  for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
    const float x = z[i];
    z[found] = x;
    column[found] = column[i];
    found += static_cast<size_t>(x >= lo) & static_cast<size_t>(x < hi);
  }
  n = static_cast<int64_t>(found);
}

int64_t find_column(const RowScan& row, const Weigh& weigh, const Cut& cut, double target, const double* block_sum) {
  const int64_t n = static_cast<int64_t>(row.z.size());
  float w[kSumBlock];
  // Sum of the weights within the cut of the block at column b, where the blocks before left `ties`; the weights in w.
  const auto kept = [&](int64_t b, int64_t& ties) {
    const int64_t len = std::min(kSumBlock, n - b);
    const auto maxima = row.block_max.begin() + b / kMaxBlock;
    if (std::all_of(maxima, maxima + blocks_of(len, kMaxBlock), [&](float m) { return m < cut.z; })) return 0.0;
    const float* const z = row.z.data() + b;
    double sum = lane_ops().kept(z, len, weigh.max, weigh.inv_t, cut.z, w);
    const int64_t n_ties = std::count(z, z + len, cut.z);
    if (n_ties > ties) {
      sum = 0;
      for (int64_t i = 0, seen = 0; i < len; ++i) {
        if (z[i] == cut.z && seen++ >= ties) w[i] = 0;
        sum += static_cast<double>(w[i]);
      }
    }
    ties = std::max<int64_t>(ties - n_ties, 0);
    return sum;
  };
  const auto walk = [&](int64_t b, int64_t ties, double left) {
    kept(b, ties);
    int64_t last = -1;
    for (int64_t i = 0; i < std::min(kSumBlock, n - b) && left >= 0; ++i) {
      if (w[i] == 0) continue;
      last = b + i;
      left -= static_cast<double>(w[i]);
    }
    return last;
  };
  int64_t last = -1, last_ties = 0;  // the last block with a weight
  for (int64_t b = 0, ties = cut.ties; b < n; b += kSumBlock) {
    const int64_t ties_before = ties;
    const double sum = block_sum != nullptr ? block_sum[b / kSumBlock] : kept(b, ties);
    if (target < sum) return walk(b, ties_before, target);
    target -= sum;
    if (sum > 0) {
      last = b;
      last_ties = ties_before;
    }
  }
  return last < 0 ? -1 : walk(last, last_ties, std::numeric_limits<double>::infinity());
}

}  // namespace rw
