#include "libcore/plan/long_run/scaling_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr size_t kTerms = 3;
using Terms = std::array<double, kTerms>;

double grown(CommGrowth g, double n) { return g == CommGrowth::linear ? n : std::log2(n); }

// What a point's relative time is made of: the three terms over its seconds.
Terms row_of(const ScalingPoint& p, CommGrowth g) {
  return {1 / (p.n * p.seconds), 1 / p.seconds, grown(g, p.n) / p.seconds};
}

double residual(const ScalingPoint& p, CommGrowth g, const Terms& x) {
  const Terms row = row_of(p, g);
  return row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
}

// Least squares over the terms of `used` (others 0) by orthogonal columns (modified Gram-Schmidt), which keeps the
// digits that normal equations lose when N spans thousands. False when the columns do not differ.
bool solve(std::span<const ScalingPoint> points, std::span<const double> weights, CommGrowth g, unsigned used,
           Terms& x) {
  std::vector<std::vector<double>> q;
  std::vector<size_t> terms;
  std::vector<double> rest(points.size());
  for (size_t i = 0; i < points.size(); ++i) rest[i] = std::sqrt(weights[i]);
  const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  };
  std::array<std::array<double, kTerms>, kTerms> r{};
  Terms coefficients{};
  for (size_t term = 0; term < kTerms; ++term) {
    if ((used >> term & 1) == 0) continue;
    std::vector<double> column(points.size());
    for (size_t i = 0; i < points.size(); ++i) column[i] = std::sqrt(weights[i]) * row_of(points[i], g)[term];
    const double whole = std::sqrt(dot(column, column));
    for (size_t k = 0; k < q.size(); ++k) {
      r[k][q.size()] = dot(q[k], column);
      for (size_t i = 0; i < column.size(); ++i) column[i] -= r[k][q.size()] * q[k][i];
    }
    const double left = std::sqrt(dot(column, column));
    if (left <= 1e-12 * whole) return false;
    r[q.size()][q.size()] = left;
    for (double& v : column) v /= left;
    coefficients[q.size()] = dot(column, rest);
    for (size_t i = 0; i < rest.size(); ++i) rest[i] -= coefficients[q.size()] * column[i];
    q.push_back(column);
    terms.push_back(term);
  }
  x = {};
  for (size_t k = q.size(); k-- > 0;) {
    double v = coefficients[k];
    for (size_t j = k + 1; j < q.size(); ++j) v -= r[k][j] * x[terms[j]];
    x[terms[k]] = v / r[k][k];
  }
  return true;
}

double cost_of(std::span<const ScalingPoint> points, std::span<const double> weights, CommGrowth g, const Terms& x) {
  double sum = 0;
  for (size_t i = 0; i < points.size(); ++i) sum += weights[i] * residual(points[i], g, x) * residual(points[i], g, x);
  return sum;
}

// The best terms that are not negative: one of the seven subsets has them as its free optimum.
Terms best_terms(std::span<const ScalingPoint> points, std::span<const double> weights, CommGrowth g) {
  Terms best{}, x{};
  double least = kInfinite;
  for (unsigned used = 1; used < 1u << kTerms; ++used) {
    if (!solve(points, weights, g, used, x)) continue;
    if (*std::min_element(x.begin(), x.end()) < 0) continue;
    // Without the terms that divide the work there is no time of one device.
    if (x[0] + x[1] <= 0) continue;
    if (const double cost = cost_of(points, weights, g, x); cost < least) least = cost, best = x;
  }
  CHECK(least < kInfinite, "no fit of %zu points", points.size());
  return best;
}

// Huber's weights around the median absolute residual, until they stay.
Terms robust_terms(std::span<const ScalingPoint> points, CommGrowth g) {
  constexpr size_t kEnough = 6;  // with fewer, three unknowns follow any point
  constexpr double kNormal = 1.4826, kHuber = 1.345;
  std::vector<double> weights(points.size());
  for (size_t i = 0; i < points.size(); ++i) weights[i] = points[i].weight;
  Terms x = best_terms(points, weights, g);
  for (int round = 0; round < 30 && points.size() >= kEnough; ++round) {
    std::vector<double> sizes(points.size());
    for (size_t i = 0; i < points.size(); ++i) sizes[i] = std::abs(residual(points[i], g, x));
    std::vector<double> sorted = sizes;
    std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(sorted.size() / 2), sorted.end());
    const double bound = kHuber * kNormal * sorted[sorted.size() / 2];
    if (bound <= 1e-12) break;
    for (size_t i = 0; i < points.size(); ++i)
      weights[i] = points[i].weight * (sizes[i] <= bound ? 1 : bound / sizes[i]);
    const Terms next = best_terms(points, weights, g);
    const bool still = std::abs(next[0] - x[0]) + std::abs(next[1] - x[1]) <= 1e-10 * (x[0] + x[1]);
    x = next;
    if (still) break;
  }
  return x;
}

double rms(std::span<const ScalingPoint> points, CommGrowth g, const Terms& x) {
  double sum = 0, weight = 0;
  for (const ScalingPoint& p : points) {
    sum += p.weight * residual(p, g, x) * residual(p, g, x);
    weight += p.weight;
  }
  return std::sqrt(sum / weight);
}

void check_points(std::span<const ScalingPoint> points) {
  std::set<double> sizes;
  for (const ScalingPoint& p : points) {
    if (!(p.n >= 1) || !(p.seconds > 0) || !(p.weight > 0) || !std::isfinite(p.n * p.seconds * p.weight))
      fail(ErrorKind::input, "a scaling point needs n >= 1, seconds > 0 and weight > 0, found n {}, {} s, weight {}",
           p.n, p.seconds, p.weight);
    sizes.insert(p.n);
  }
  if (sizes.size() < kTerms)
    fail(ErrorKind::input, "a scaling law has three unknowns: expected points at three sizes or more, found {}",
         sizes.size());
}

}  // namespace

const char* growth_name(CommGrowth g) { return g == CommGrowth::linear ? "c*N" : "c*log2(N)"; }

double ScalingLaw::speedup(double n) const { return 1 / ((1 - p) / n + p + c * grown(growth, n)); }
double ScalingLaw::seconds(double n) const { return t1 / speedup(n); }
double ScalingLaw::efficiency(double n) const { return speedup(n) / n; }

double ScalingLaw::best_n() const {
  if (c <= 0) return kInfinite;
  return growth == CommGrowth::linear ? std::sqrt((1 - p) / c) : (1 - p) * std::log(2.0) / c;
}

// Efficiency falls with N all the way (each of N P and N C(N) grows), so halving finds it.
double ScalingLaw::knee(double share, double from) const {
  const double wanted = share * efficiency(from);
  double low = from, high = from;
  while (efficiency(high) >= wanted) {
    if (high > 1e15) return kInfinite;
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 80; ++i) {
    const double mid = low + (high - low) / 2;
    (efficiency(mid) >= wanted ? low : high) = mid;
  }
  return low;
}

ScalingFit fit_scaling(std::span<const ScalingPoint> points) {
  check_points(points);
  const Terms linear = robust_terms(points, CommGrowth::linear),
              logarithmic = robust_terms(points, CommGrowth::logarithmic);
  const double linear_error = rms(points, CommGrowth::linear, linear),
               logarithmic_error = rms(points, CommGrowth::logarithmic, logarithmic);
  constexpr double kEqual = 1e-9;  // both follow three points exactly
  const bool is_linear = linear_error <= logarithmic_error + kEqual;
  const Terms& x = is_linear ? linear : logarithmic;
  ScalingFit fit;
  fit.law = {.t1 = x[0] + x[1],
             .p = x[1] / (x[0] + x[1]),
             .c = x[2] / (x[0] + x[1]),
             .growth = is_linear ? CommGrowth::linear : CommGrowth::logarithmic};
  fit.error = is_linear ? linear_error : logarithmic_error;
  fit.other_error = is_linear ? logarithmic_error : linear_error;
  for (const ScalingPoint& p : points)
    fit.worst_error = std::max(fit.worst_error, std::abs(residual(p, fit.law.growth, x)));
  return fit;
}

}  // namespace rw
