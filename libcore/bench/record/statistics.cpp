#include "libcore/bench/record/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rw {

double quantile_of(std::span<const double> values, double share) {
  if (values.empty() || std::isnan(share)) return std::numeric_limits<double>::quiet_NaN();
  std::vector<double> sorted(values.begin(), values.end());
  // A NaN has no place in an order: the answer is not known.
  if (std::any_of(sorted.begin(), sorted.end(), [](double v) { return std::isnan(v); }))
    return std::numeric_limits<double>::quiet_NaN();
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::ptrdiff_t>(at);
  std::nth_element(sorted.begin(), sorted.begin() + below, sorted.end());
  const double low = sorted[static_cast<size_t>(below)];
  const double part = at - static_cast<double>(below);
  if (part == 0) return low;
  return low + part * (*std::min_element(sorted.begin() + below + 1, sorted.end()) - low);
}

double mean_of(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

double deviation_of(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = mean_of(values);
  double sum = 0;
  for (const double v : values) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(values.size() - 1));
}

std::vector<bool> control_false_discoveries(std::span<const double> p, double level) {
  std::vector<double> sorted;
  for (const double v : p)
    if (!std::isnan(v)) sorted.push_back(v);
  std::sort(sorted.begin(), sorted.end());
  double last = -1;
  for (size_t i = 0; i < sorted.size(); ++i)
    if (sorted[i] <= level * static_cast<double>(i + 1) / static_cast<double>(sorted.size())) last = sorted[i];
  std::vector<bool> found;
  for (const double v : p) found.push_back(v <= last);
  return found;
}

}  // namespace rw
