// Student's distribution, for what few samples allow to say.
#pragma once
#include <cstdint>

namespace rw {

// P(T <= t) of n >= 1 degrees of freedom: the finite sums of Abramowitz & Stegun 26.7.3 and 26.7.4.
double student_cdf(double t, int64_t n);
// t with student_cdf(t, n) = share, share in (0, 1).
double student_quantile(double share, int64_t n);
// z with P(Z <= z) = share of the normal distribution, share in (0, 1).
double normal_quantile(double share);

}  // namespace rw
