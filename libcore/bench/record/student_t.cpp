#include "libcore/bench/record/student_t.h"

#include <cmath>
#include <numbers>

namespace rw {
namespace {

// cdf rises; the answer is looked for in (-1e9, 1e9).
template <typename Cdf>
double invert(const Cdf& cdf, double share) {
  double low = -1, high = 1;
  while (cdf(low) > share && low > -1e9) low *= 2;
  while (cdf(high) < share && high < 1e9) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-13 * std::abs(high); ++i) {
    const double middle = 0.5 * (low + high);
    (cdf(middle) < share ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

}  // namespace

double student_cdf(double t, int64_t n) {
  // The sums below need n terms and lose nothing to the normal distribution there.
  if (n > 10000) return normal_cdf(t);
  const double angle = std::atan2(t, std::sqrt(static_cast<double>(n)));
  const double cosine = std::cos(angle), sine = std::sin(angle);
  const bool is_odd = n % 2 == 1;
  double term = is_odd ? cosine : 1, sum = n == 1 ? 0 : term;
  for (int64_t k = is_odd ? 3 : 2; k <= n - 2; k += 2) {
    term *= cosine * cosine * static_cast<double>(k - 1) / static_cast<double>(k);
    sum += term;
  }
  const double both = is_odd ? 2 / std::numbers::pi * (angle + sine * sum) : sine * sum;  // P(|T| <= t), signed
  return 0.5 + 0.5 * both;
}

double student_quantile(double share, int64_t n) {
  return invert([n](double t) { return student_cdf(t, n); }, share);
}

double normal_quantile(double share) { return invert(normal_cdf, share); }

}  // namespace rw
