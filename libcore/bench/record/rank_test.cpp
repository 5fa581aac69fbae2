#include "libcore/bench/record/rank_test.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace rw {
namespace {

double normal_tail(double z) { return 0.5 * std::erfc(z / std::sqrt(2.0)); }

// Ranks times two, so that the mid-ranks of ties are whole numbers too; and the sum over ties of t^3 - t.
struct Ranks {
  std::vector<int64_t> doubled;
  double ties = 0;
};
Ranks ranks_of(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  Ranks ranks{std::vector<int64_t>(values.size())};
  for (size_t first = 0; first < order.size();) {
    size_t end = first + 1;
    while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
    for (size_t i = first; i < end; ++i) ranks.doubled[order[i]] = static_cast<int64_t>(first + 1 + end);
    const double t = static_cast<double>(end - first);
    ranks.ties += t * t * t - t;
    first = end;
  }
  return ranks;
}

int64_t sum_of(std::span<const int64_t> values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// Of all ways to draw `n` of the ranks, the share whose sum is `at_least` or more.
double share_of_draws(std::span<const int64_t> ranks, int64_t n, int64_t at_least) {
  const int64_t total = sum_of(ranks), width = total + 1;
  // ways[k * width + s]: draws of k ranks with the sum s; doubles: C(60, 30) is 1.2e17, and only shares are wanted.
  std::vector<double> ways(static_cast<size_t>((n + 1) * width), 0);
  ways[0] = 1;
  int64_t seen = 0, reach = 0;
  for (const int64_t rank : ranks) {
    reach += rank;
    for (int64_t k = std::min(n, ++seen); k >= 1; --k)
      for (int64_t s = reach; s >= rank; --s)
        ways[static_cast<size_t>(k * width + s)] += ways[static_cast<size_t>((k - 1) * width + s - rank)];
  }
  const auto first = ways.begin() + n * width;
  const double all = std::accumulate(first, first + width, 0.0);
  return std::accumulate(first + std::clamp<int64_t>(at_least, 0, width), first + width, 0.0) / all;
}

// Of all ways to give the ranks signs, the share whose positive ones sum to `at_least` or more.
double share_of_signs(std::span<const int64_t> ranks, int64_t at_least) {
  std::vector<double> ways(static_cast<size_t>(sum_of(ranks) + 1), 0);
  ways[0] = 1;
  int64_t reach = 0;
  for (const int64_t rank : ranks) {
    reach += rank;
    for (int64_t s = reach; s >= rank; --s) ways[static_cast<size_t>(s)] += ways[static_cast<size_t>(s - rank)];
  }
  const double all = std::accumulate(ways.begin(), ways.end(), 0.0);
  return std::accumulate(ways.begin() + at_least, ways.end(), 0.0) / all;
}

}  // namespace

double mann_whitney_p(std::span<const double> smaller, std::span<const double> larger) {
  const auto n = static_cast<int64_t>(larger.size()), all = static_cast<int64_t>(smaller.size()) + n;
  if (smaller.empty() || larger.empty()) return 1;
  std::vector<double> values(larger.begin(), larger.end());
  values.insert(values.end(), smaller.begin(), smaller.end());
  const Ranks ranks = ranks_of(values);
  const int64_t sum = sum_of(std::span(ranks.doubled).first(larger.size()));
  if (all <= kExactSamples) return share_of_draws(ranks.doubled, n, sum);
  const double a = static_cast<double>(n), total = static_cast<double>(all), b = total - a;
  const double variance = a * b / 12 * (total + 1 - ranks.ties / (total * (total - 1)));
  if (variance <= 0) return 1;
  const double above = static_cast<double>(sum) / 2 - a * (total + 1) / 2;
  return normal_tail((above - 0.5) / std::sqrt(variance));
}

double signed_rank_p(std::span<const double> differences) {
  std::vector<double> sizes;
  std::vector<bool> is_positive;
  for (const double d : differences) {
    if (d == 0) continue;
    sizes.push_back(std::abs(d));
    is_positive.push_back(d > 0);
  }
  if (sizes.empty()) return 1;
  const Ranks ranks = ranks_of(sizes);
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (is_positive[i]) sum += ranks.doubled[i];
  if (static_cast<int64_t>(sizes.size()) <= kExactSamples) return share_of_signs(ranks.doubled, sum);
  const double n = static_cast<double>(sizes.size());
  const double variance = n * (n + 1) * (2 * n + 1) / 24 - ranks.ties / 48;
  const double above = static_cast<double>(sum) / 2 - n * (n + 1) / 4;
  return normal_tail((above - 0.5) / std::sqrt(variance));
}

double serial_score(std::span<const double> in_order) {
  if (static_cast<int64_t>(in_order.size()) < kLeastForSerial) return 0;
  const Ranks ranks = ranks_of(in_order);
  const double n = static_cast<double>(in_order.size());
  double steps = 0, spread = 0;
  for (size_t i = 0; i < in_order.size(); ++i) {
    const double rank = static_cast<double>(ranks.doubled[i]) / 2;
    spread += (rank - (n + 1) / 2) * (rank - (n + 1) / 2);
    if (i > 0) {
      const double step = rank - static_cast<double>(ranks.doubled[i - 1]) / 2;
      steps += step * step;
    }
  }
  if (spread == 0) return 0;
  const double variance = 4 * (n - 2) * (5 * n * n - 2 * n - 9) / (5 * n * (n + 1) * (n - 1) * (n - 1));
  return (2 - steps / spread) / std::sqrt(variance);
}

}  // namespace rw
