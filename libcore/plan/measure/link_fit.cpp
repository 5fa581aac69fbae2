#include "libcore/plan/measure/link_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <string>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kLeastSlope = 1e-18;  // seconds a byte of a line that does not rise: more than any link carries

struct Line {
  double alpha = 0, slope = 0, error = 0;  // error: the sum of squares
  double at(double bytes) const { return alpha + bytes * slope; }
};

double squares(const Line& line, std::span<const TimedSize> points) {
  double sum = 0;
  for (const TimedSize& p : points) sum += std::pow(line.at(p.bytes) / p.seconds - 1, 2);
  return sum;
}

// The normal equations of Sum (alpha / t + slope * n / t - 1)^2. Where a coefficient leaves its range the optimum lies
// on the border, as the problem is convex.
Line fit_line(std::span<const TimedSize> points) {
  double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
  for (const TimedSize& p : points) {
    const double a = 1 / p.seconds, b = p.bytes / p.seconds;
    aa += a * a, ab += a * b, bb += b * b, a1 += a, b1 += b;
  }
  const double det = aa * bb - ab * ab;
  Line line;
  if (points.size() > 1 && det > 1e-12 * aa * bb) {
    line.alpha = (a1 * bb - b1 * ab) / det;
    line.slope = (aa * b1 - ab * a1) / det;
  }
  if (!(line.slope >= kLeastSlope)) line = {.alpha = std::max(0.0, (a1 - kLeastSlope * ab) / aa), .slope = kLeastSlope};
  const Line through_zero{.alpha = 0, .slope = b1 / bb};
  if (points.size() == 1 || !(line.alpha >= 0) || squares(through_zero, points) < squares(line, points))
    line = through_zero;
  line.error = squares(line, points);
  return line;
}

std::vector<TimedSize> by_size(const std::vector<TimedSize>& points) {
  std::map<double, std::vector<double>> times;
  for (const TimedSize& p : points) {
    if (!(p.bytes > 0) || !(p.seconds > 0) || !std::isfinite(p.bytes + p.seconds))
      fail(ErrorKind::input, "a collective of {} bytes in {} s: expected both above 0", p.bytes, p.seconds);
    times[p.bytes].push_back(p.seconds);
  }
  std::vector<TimedSize> out;
  for (auto& [bytes, seconds] : times) {
    std::sort(seconds.begin(), seconds.end());
    out.push_back({.bytes = bytes, .seconds = seconds[seconds.size() / 2]});
  }
  return out;
}

// Where the second line takes over, between the sizes `last` of the first and `next` of its own.
double crossing(const Line& first, const Line& second, double last, double next) {
  const double at = (second.alpha - first.alpha) / (first.slope - second.slope);
  return at > last && at <= next ? at : std::sqrt(last * next);
}

LinkSegment segment(const Line& line, double from) {
  return {.from_bytes = static_cast<int64_t>(std::ceil(from)), .alpha = line.alpha, .bandwidth = 1 / line.slope};
}

}  // namespace

std::vector<LinkSegment> fit_segments(std::vector<TimedSize> points) {
  points = by_size(points);
  if (points.empty()) fail(ErrorKind::input, "a fit of a link: expected at least one size and its time, found none");
  const std::span<const TimedSize> all = points;
  const Line one = fit_line(all);
  constexpr double kGain = 0.9;  // of the squares: a cut that keeps more than this explains nothing
  double least = one.error * kGain;
  std::vector<LinkSegment> best = {segment(one, 0)};
  if (one.error < 1e-12) return best;
  for (size_t cut = 2; cut + 2 <= points.size(); ++cut) {
    const Line first = fit_line(all.first(cut)), second = fit_line(all.subspan(cut));
    if (first.error + second.error >= least) continue;
    least = first.error + second.error;
    best = {segment(first, 0), segment(second, crossing(first, second, points[cut - 1].bytes, points[cut].bytes))};
  }
  return best;
}

double four_digits(double value) { return std::stod(fmt::format("{:.4g}", value)); }

FitError fit_error(const std::vector<LinkSegment>& segments, const std::vector<TimedSize>& points) {
  CHECK(!segments.empty() && !points.empty(), "%zu segments, %zu points", segments.size(), points.size());
  FitError e;
  for (const TimedSize& p : points) {
    const auto line = std::find_if(segments.rbegin(), segments.rend(),
                                   [&](const LinkSegment& s) { return static_cast<double>(s.from_bytes) <= p.bytes; });
    const double miss = std::abs((line->alpha + p.bytes / line->bandwidth) / p.seconds - 1);
    e.mean += miss / static_cast<double>(points.size());
    e.worst = std::max(e.worst, miss);
  }
  return e;
}

}  // namespace rw
