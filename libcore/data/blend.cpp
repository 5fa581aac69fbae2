#include "libcore/data/blend.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

// Whole counts that sum to kBlendWindow, each within one of its exact share: floors, then the largest remainders.
std::vector<int64_t> apportion(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> counts;
  std::vector<double> remainders;
  for (const double w : weights) {
    const double share = w / total * static_cast<double>(kBlendWindow);
    counts.push_back(static_cast<int64_t>(std::floor(share)));
    remainders.push_back(share - std::floor(share));
  }
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
  int64_t left = kBlendWindow - std::accumulate(counts.begin(), counts.end(), int64_t{0});
  for (size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++counts[order[i]];
  return counts;
}

}  // namespace

// Job j of a source with n samples in the window may run from floor(j W / n) on and must be done before ceil((j + 1) W
// / n). Earliest deadline first meets all of these (the even flow is a fractional schedule, and for unit jobs with
// whole release times and deadlines the rule finds a whole one wherever a fractional one exists; Baruah et al. 1996),
// which is to say that after t samples a source has had floor(t n / W) or ceil(t n / W).
Blend::Blend(const std::vector<double>& weights) : counts_(apportion(weights)) {
  for (size_t s = 0; s < weights.size(); ++s) {
    CHECK(std::isfinite(weights[s]) && weights[s] > 0, "weight %g", weights[s]);
    if (counts_[s] == 0)
      fail(ErrorKind::usage,
           "weight {:g}: expected at least 1/{} of the sum of the weights; leave the file out or raise it", weights[s],
           kBlendWindow);
  }
  if (counts_.size() == 1) return;
  std::vector<int32_t> done(counts_.size(), 0);
  slots_.reserve(kBlendWindow);
  for (int64_t t = 0; t < kBlendWindow; ++t) {
    int64_t earliest = kBlendWindow + 1;
    size_t chosen = 0;
    for (size_t s = 0; s < counts_.size(); ++s) {
      const int64_t n = counts_[s], j = done[s];
      if (j == n || j * kBlendWindow / n > t) continue;
      const int64_t deadline = ((j + 1) * kBlendWindow + n - 1) / n;
      if (deadline < earliest) earliest = deadline, chosen = s;
    }
    slots_.push_back({static_cast<int32_t>(chosen), done[chosen]++});
  }
}

Blend::Turn Blend::at(int64_t sample) const {
  CHECK(sample >= 0, "sample %ld", static_cast<long>(sample));
  if (slots_.empty()) return {0, sample};
  const Slot slot = slots_[static_cast<size_t>(sample % kBlendWindow)];
  return {slot.source, sample / kBlendWindow * counts_[static_cast<size_t>(slot.source)] + slot.index};
}

}  // namespace rw
