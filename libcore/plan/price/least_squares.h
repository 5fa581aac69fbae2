// Bounded robust non-linear least squares for calibrations: few parameters, residuals that are cheap to compute.
#pragma once
#include <functional>
#include <vector>

namespace rw {

struct FitParameter {
  double start, low, high;  // low > 0: it is fitted as its logarithm
};
struct FitSettings {
  int most_rounds = 60;
  // Residuals beyond this count linearly instead of squared: rho(r) = 2 (sqrt(1 + (r/s)^2) - 1) (soft L1).
  double soft = 1.0;
  double tolerance = 1e-6;  // of the cost's relative gain, below which it ends
};
struct Fit {
  std::vector<double> parameters;
  double cost_before = 0, cost = 0;  // sum of rho
  int rounds = 0;
};
// Levenberg-Marquardt (Marquardt 1963) with a numeric Jacobian and iteratively reweighted residuals; parameters are
// kept within their bounds. residuals(p) has one entry an observation (and one for each prior), always as many.
Fit fit_least_squares(const std::vector<FitParameter>& parameters,
                      const std::function<std::vector<double>(const std::vector<double>&)>& residuals,
                      const FitSettings& settings = {});

}  // namespace rw
