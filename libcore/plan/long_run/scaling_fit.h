// How a job's speed grows with its devices, as a law with a cause in each term:
//   S(N) = 1 / ((1 - P) / N + P + C(N)),   C(N) = c N  or  C(N) = c log2 N
// (Amdahl 1967 with a term for communication that grows with N). P is the share of the work that more devices do not
// make shorter, C(N) what talking to more of them adds, both against one device's time.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace rw {

enum class CommGrowth : uint8_t { linear, logarithmic };
const char* growth_name(CommGrowth growth);  // "c*N", "c*log2(N)"

struct ScalingLaw {
  double t1 = 0;  // seconds per unit of work at N = 1, without C
  double p = 0;   // in [0, 1]
  double c = 0;   // >= 0
  CommGrowth growth = CommGrowth::linear;
  double speedup(double n) const;     // S(N)
  double seconds(double n) const;     // t1 / S(N)
  double efficiency(double n) const;  // S(N) / N
  // Where S is largest: sqrt((1 - P) / c), or (1 - P) ln 2 / c; infinite when c is 0 (S never falls).
  double best_n() const;
  // The largest N whose efficiency is at least `share` of the efficiency at `from`; infinite when all are.
  double knee(double share, double from) const;
};

struct ScalingPoint {
  double n = 0;        // devices or nodes, >= 1
  double seconds = 0;  // per unit of work: a step's where all N do the same step, else by token
  double weight = 1;   // times measured
};
struct ScalingFit {
  ScalingLaw law;
  double error = 0;        // root mean square of the relative residuals
  double worst_error = 0;  // largest of them
  double other_error = 0;  // of the other growth's best fit
};
// Least squares of the relative residuals, t = t1 (1 - P) / N + t1 P + t1 c g(N) being linear in three unknowns that
// are not negative; points far off the rest count less (Huber's weights, from six points on). Both growths are tried,
// the better is kept; linear when they are equal. At least three points with different N: Error{input} otherwise, and
// for times that are not positive.
ScalingFit fit_scaling(std::span<const ScalingPoint> points);

// Measured points from CSV (a head line with n and step_time_s, and weight or tokens when they are known) or JSON (an
// array of objects with these keys, or an object with such an array "points"). Seconds are divided by tokens where
// there are any. Error{input} names file, line or entry, and what is missing or out of
// range: steps of 1e-9 to 1e9 s, at most 10,000 points.
std::vector<ScalingPoint> parse_scaling_points(const std::string& text, const std::string& where);

}  // namespace rw
