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

template <typename Visit>
void StragglerWatch::compare(std::span<const double> seconds, Visit visit) const {
  CHECK(seconds.size() == slow_steps_.size(), "times of %zu ranks, expected %zu", seconds.size(), slow_steps_.size());
  for (const std::vector<int64_t>& ranks : groups_) {
    std::vector<double> ascending;
    for (const int64_t r : ranks)
      if (const double s = seconds[static_cast<size_t>(r)]; counts(s)) ascending.push_back(s);
    std::sort(ascending.begin(), ascending.end());
    for (const int64_t r : ranks) {
      const double s = seconds[static_cast<size_t>(r)];
      double peers_s = 0;
      if (counts(s) && ascending.size() > 1) {
        const auto place = std::lower_bound(ascending.begin(), ascending.end(), s) - ascending.begin();
        peers_s = median_of_others(ascending, static_cast<size_t>(place));
      }
      visit(r, s, peers_s);
    }
  }
}

std::vector<Straggler> StragglerWatch::observe(std::span<const double> seconds) {
  std::vector<Straggler> found;
  compare(seconds, [&](int64_t r, double s, double peers_s) {
    int64_t& slow = slow_steps_[static_cast<size_t>(r)];
    slow = peers_s > 0 && s > kSlower * peers_s ? slow + 1 : 0;
    if (slow == kSteps) found.push_back({.rank = r, .seconds = s, .peers_s = peers_s});
  });
  std::sort(found.begin(), found.end(), [](const Straggler& a, const Straggler& b) { return a.rank < b.rank; });
  return found;
}

Straggler StragglerWatch::slowest(std::span<const double> seconds) const {
  Straggler most{.rank = -1, .seconds = 0, .peers_s = 1};
  compare(seconds, [&](int64_t r, double s, double peers_s) {
    if (peers_s > 0 && s * most.peers_s > most.seconds * peers_s) most = {.rank = r, .seconds = s, .peers_s = peers_s};
  });
  return most;
}

}  // namespace rw
