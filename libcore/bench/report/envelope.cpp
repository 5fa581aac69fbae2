#include "libcore/bench/report/envelope.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace rw {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Keeps [begin, end), one column's points.
void keep_column(const std::vector<Point>& points, size_t begin, size_t end, std::vector<Point>& out) {
  std::vector<size_t> keep;
  size_t low = end, high = end, first = end, last = end, gap = end;
  for (size_t i = begin; i < end; ++i) {
    if (!std::isfinite(points[i].y)) {
      gap = i;
      continue;
    }
    if (first == end) first = i;
    last = i;
    if (low == end || points[i].y < points[low].y) low = i;
    if (high == end || points[i].y > points[high].y) high = i;
  }
  for (const size_t i : {first, low, high, last, gap})
    if (i != end) keep.push_back(i);
  std::sort(keep.begin(), keep.end());
  keep.erase(std::unique(keep.begin(), keep.end()), keep.end());
  for (const size_t i : keep) out.push_back(points[i]);
}

}  // namespace

std::vector<Point> envelope(const std::vector<Point>& points, int64_t columns) {
  if (static_cast<int64_t>(points.size()) <= 4 * columns) return points;
  const double from = points.front().x, width = (points.back().x - from) / static_cast<double>(columns);
  if (!(width > 0)) return {points.front(), points.back()};
  std::vector<Point> out;
  size_t begin = 0;
  for (int64_t c = 0; c < columns && begin < points.size(); ++c) {
    const double until = from + width * static_cast<double>(c + 1);
    size_t end = begin;
    while (end < points.size() && (c + 1 == columns || points[end].x < until)) ++end;
    keep_column(points, begin, end, out);
    begin = end;
  }
  return out;
}

Means column_means(const std::vector<double>& x, const std::vector<std::vector<double>>& rows, int64_t columns) {
  const auto n = static_cast<int64_t>(x.size());
  Means means;
  means.per_column = std::max<int64_t>(1, (n + columns - 1) / columns);
  means.rows.resize(rows.size());
  for (int64_t begin = 0; begin < n; begin += means.per_column) {
    const int64_t end = std::min(n, begin + means.per_column);
    means.x.push_back(x[static_cast<size_t>(begin)]);
    for (size_t r = 0; r < rows.size(); ++r) {
      double sum = 0;
      int64_t count = 0;
      for (int64_t i = begin; i < end; ++i) {
        const double v = rows[r][static_cast<size_t>(i)];
        if (std::isfinite(v)) sum += v, ++count;
      }
      means.rows[r].push_back(count > 0 ? sum / static_cast<double>(count) : kNone);
    }
  }
  return means;
}

}  // namespace rw
