// The kernels' formulas written down naively in double precision: what the tests compare with.
#pragma once
#include <cstdint>
#include <vector>

namespace ref {

using Vec = std::vector<double>;

// ---- norms: x(rows,c), w(c), b(c) or empty; RMSNorm when b is empty and layer is false ------------------------------
struct Norm {
  Vec y, mean, rstd;
};
Norm norm_fwd(const Vec& x, const Vec& w, const Vec& b, int64_t c, double eps, bool layer);

// Through the norm with the given statistics; the mag_ fields are sums of absolute values for error bounds.
struct NormGrad {
  Vec d_x, d_w, d_b;
  Vec mag_x;         // (rows,c): rstd * (|g| + mean|g| + |h| mean|g h|)
  Vec mag_w, mag_b;  // (c): sums of |d_y h| and |d_y|
};
NormGrad norm_bwd(const Vec& d_y, const Vec& x, const Vec& w, const Vec& mean, const Vec& rstd, int64_t c, bool layer);

// ---- rotary embedding of one head at position pos, base theta -------------------------------------------------------
Vec rope(const Vec& x, int64_t pos, double theta, bool inverse);

// ---- activations ----------------------------------------------------------------------------------------------------
double gelu(double x);
double gelu_slope(double x);
double silu(double x);
double silu_slope(double x);

// ---- loss of one row ------------------------------------------------------------------------------------------------
double cross_entropy(const Vec& logits, int64_t target);
Vec cross_entropy_grad(const Vec& logits, int64_t target);

// ---- one AdamW step of one element, as the formula in kernels/ops.h -------------------------------------------------
struct Adam {
  double p, m, v;
};
struct AdamSettings {
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  int64_t step;
};
Adam adamw(Adam state, double g, const AdamSettings&);

// Fourth-order central difference of f at x[i].
template <class F>
double slope(const F& f, Vec x, int64_t i, double h = 1e-3) {
  const double x0 = x[i];
  const auto at = [&](double d) {
    x[i] = x0 + d;
    return static_cast<double>(f(x));
  };
  return (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h);
}

}  // namespace ref
