#include "libcore/train/straggler.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "libcore/base/check.h"

namespace rw {
namespace {

// Median of the ascending values without the one at `left_out`.
double median_of_others(const std::vector<double>& ascending, size_t left_out) {
  const size_t n = ascending.size() - 1;
  const auto at = [&](size_t i) { return ascending[i < left_out ? i : i + 1]; };
  return n % 2 == 1 ? at(n / 2) : (at(n / 2 - 1) + at(n / 2)) / 2;
}

bool counts(double seconds) { return std::isfinite(seconds) && seconds > 0; }

}  // namespace

StragglerWatch::StragglerWatch(const std::vector<int64_t>& group_of_rank) : slow_steps_(group_of_rank.size(), 0) {
  std::map<int64_t, std::vector<int64_t>> groups;
  for (size_t r = 0; r < group_of_rank.size(); ++r) groups[group_of_rank[r]].push_back(static_cast<int64_t>(r));
  for (auto& [group, ranks] : groups) groups_.push_back(std::move(ranks));
}

std::vector<Straggler> StragglerWatch::observe(std::span<const double> seconds) {
  CHECK(seconds.size() == slow_steps_.size(), "times of %zu ranks, expected %zu", seconds.size(), slow_steps_.size());
  std::vector<Straggler> found;
  for (const std::vector<int64_t>& ranks : groups_) {
    std::vector<double> ascending;
    for (const int64_t r : ranks)
      if (const double s = seconds[static_cast<size_t>(r)]; counts(s)) ascending.push_back(s);
    std::sort(ascending.begin(), ascending.end());
    for (const int64_t r : ranks) {
      const double s = seconds[static_cast<size_t>(r)];
      int64_t& slow = slow_steps_[static_cast<size_t>(r)];
      double peers_s = 0;
      if (counts(s) && ascending.size() > 1) {
        const auto place = std::lower_bound(ascending.begin(), ascending.end(), s) - ascending.begin();
        peers_s = median_of_others(ascending, static_cast<size_t>(place));
      }
      slow = peers_s > 0 && s > kSlower * peers_s ? slow + 1 : 0;
      if (slow == kSteps) found.push_back({.rank = r, .seconds = s, .peers_s = peers_s});
    }
  }
  std::sort(found.begin(), found.end(), [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace rw
