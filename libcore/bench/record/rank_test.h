// Rank tests: is one set of measurements larger than another, whatever the shape of their noise? All p-values are
// one-sided and hold exactly up to kExactSamples values in all, ties included (mid-ranks, the permutation
// distribution); beyond, the normal approximation with the corrections for ties and continuity.
#pragma once
#include <cstdint>
#include <span>

namespace rw {

inline constexpr int64_t kExactSamples = 60;

// The chance that the ranks of `larger` among all come out as high as they did or higher when both sets are from one
// distribution (Mann & Whitney 1947). 1 when either is empty.
double mann_whitney_p(std::span<const double> smaller, std::span<const double> larger);

// The chance that the signed ranks of differences come out as high as they did or higher when they are symmetric about
// 0 (Wilcoxon 1945). Zeros are left out. 1 when nothing is left.
double signed_rank_p(std::span<const double> differences);

// Do values resemble those taken just before them (a drift, a disturbance that lasts)? The rank version of von
// Neumann's ratio (Bartels 1982): mean squared step between neighbours over the variance, of ranks: 2 when they are
// independent, near 0 for a drift. Gives its distance below 2 in standard deviations; 0 of fewer than kLeastForSerial
// values or where all are equal.
inline constexpr int64_t kLeastForSerial = 8;
double serial_score(std::span<const double> in_order);

}  // namespace rw
