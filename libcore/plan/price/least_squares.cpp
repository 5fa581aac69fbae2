#include "libcore/plan/price/least_squares.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/check.h"

namespace rw {
namespace {

using Vector = std::vector<double>;

double rho(double r, double soft) {
  const double x = r / soft;
  return 2 * soft * soft * (std::sqrt(1 + x * x) - 1);
}
double weight(double r, double soft) { return 1 / std::sqrt(1 + r / soft * (r / soft)); }

double cost_of(const Vector& r, double soft) {
  double sum = 0;
  for (const double x : r) sum += rho(x, soft);
  return std::isfinite(sum) ? sum : INFINITY;
}

// Solves the symmetric positive definite a x = b in place (Cholesky); false when it is not.
bool solve(std::vector<Vector> a, Vector b, Vector& x) {
  const size_t n = b.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j <= i; ++j) {
      double s = a[i][j];
      for (size_t k = 0; k < j; ++k) s -= a[i][k] * a[j][k];
      if (i == j && !(s > 0)) return false;
      a[i][j] = i == j ? std::sqrt(s) : s / a[j][j];
    }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  x = std::move(b);
  return true;
}

// Parameters on the scale that they are fitted on.
class ParameterScale {
 public:
  explicit ParameterScale(const std::vector<FitParameter>& p) : p_(p) {}
  double to(size_t i, double v) const { return p_[i].low > 0 ? std::log(v) : v; }
  double low(size_t i) const { return to(i, p_[i].low); }
  double high(size_t i) const { return to(i, p_[i].high); }
  Vector natural(const Vector& u) const {
    Vector v(u);
    for (size_t i = 0; i < v.size(); ++i) v[i] = p_[i].low > 0 ? std::exp(u[i]) : u[i];
    return v;
  }

 private:
  const std::vector<FitParameter>& p_;
};

}  // namespace

Fit fit_least_squares(const std::vector<FitParameter>& parameters,
                      const std::function<Vector(const Vector&)>& residuals, const FitSettings& settings) {
  constexpr double kStep = 1e-4, kFirstDamping = 1e-3, kMostDamping = 1e8;
  const size_t n = parameters.size();
  const ParameterScale scale(parameters);
  Vector u(n);
  for (size_t i = 0; i < n; ++i) {
    CHECK(parameters[i].low <= parameters[i].start && parameters[i].start <= parameters[i].high,
          "fit: parameter %zu starts outside its bounds", i);
    u[i] = scale.to(i, parameters[i].start);
  }
  const auto at = [&](const Vector& v) { return residuals(scale.natural(v)); };
  Vector r = at(u);
  Fit fit;
  fit.cost_before = fit.cost = cost_of(r, settings.soft);
  double damping = kFirstDamping;
  for (; fit.rounds < settings.most_rounds && damping < kMostDamping; ++fit.rounds) {
    std::vector<Vector> columns(n);
    for (size_t i = 0; i < n; ++i) {
      Vector moved = u;
      const double room = scale.high(i) - scale.low(i);
      if (room <= 0) {
        columns[i].assign(r.size(), 0.0);
        continue;
      }
      const double step = (u[i] + kStep <= scale.high(i) ? 1 : -1) * std::min(kStep, room / 2);
      moved[i] += step;
      columns[i] = at(moved);
      for (size_t k = 0; k < r.size(); ++k) columns[i][k] = (columns[i][k] - r[k]) / step;
    }
    std::vector<Vector> normal(n, Vector(n, 0.0));
    Vector gradient(n, 0.0);
    for (size_t k = 0; k < r.size(); ++k) {
      const double w = weight(r[k], settings.soft);
      for (size_t i = 0; i < n; ++i) {
        gradient[i] -= w * columns[i][k] * r[k];
        for (size_t j = 0; j <= i; ++j) normal[i][j] += w * columns[i][k] * columns[j][k];
      }
    }
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i + 1; j < n; ++j) normal[i][j] = normal[j][i];
    // A parameter at a bound that the gradient pushes out stays there.
    for (size_t i = 0; i < n; ++i)
      if ((u[i] >= scale.high(i) && gradient[i] > 0) || (u[i] <= scale.low(i) && gradient[i] < 0)) {
        gradient[i] = 0;
        for (size_t j = 0; j < n; ++j) normal[i][j] = normal[j][i] = 0;
      }
    bool better = false;
    double gain = 0;
    while (!better && damping < kMostDamping) {
      std::vector<Vector> damped = normal;
      for (size_t i = 0; i < n; ++i) damped[i][i] += damping * std::max(normal[i][i], 1e-9) + 1e-12;
      Vector delta;
      if (solve(damped, gradient, delta)) {
        Vector next = u;
        for (size_t i = 0; i < n; ++i) next[i] = std::clamp(u[i] + delta[i], scale.low(i), scale.high(i));
        Vector next_r = at(next);
        const double cost = cost_of(next_r, settings.soft);
        if (cost < fit.cost) {
          gain = (fit.cost - cost) / std::max(fit.cost, 1e-300);
          better = true;
          u = std::move(next);
          r = std::move(next_r);
          fit.cost = cost;
          damping = std::max(damping / 5, 1e-12);
          continue;
        }
      }
      damping *= 4;
    }
    if (!better || gain < settings.tolerance) break;
  }
  fit.parameters = scale.natural(u);
  return fit;
}

}  // namespace rw
