#include "tests/ref/kernels.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ref {

Norm norm_fwd(const Vec& x, const Vec& w, const Vec& b, int64_t c, double eps, bool layer) {
  Norm n;
  n.y.resize(x.size());
  for (int64_t at = 0; at < static_cast<int64_t>(x.size()); at += c) {
    double mean = 0, square = 0;
    for (int64_t i = 0; layer && i < c; ++i) mean += x[at + i] / static_cast<double>(c);
    for (int64_t i = 0; i < c; ++i) square += std::pow(x[at + i] - mean, 2) / static_cast<double>(c);
    const double rstd = 1 / std::sqrt(square + eps);
    for (int64_t i = 0; i < c; ++i) n.y[at + i] = (x[at + i] - mean) * rstd * w[i] + (b.empty() ? 0 : b[i]);
    n.mean.push_back(mean);
    n.rstd.push_back(rstd);
  }
  return n;
}

NormGrad norm_bwd(const Vec& d_y, const Vec& x, const Vec& w, const Vec& mean, const Vec& rstd, int64_t c, bool layer) {
  NormGrad g{Vec(x.size()), Vec(c), Vec(c), Vec(x.size()), Vec(c), Vec(c)};
  for (int64_t r = 0; r * c < static_cast<int64_t>(x.size()); ++r) {
    double mean_g = 0, mean_gh = 0, abs_g = 0, abs_gh = 0;
    const auto h = [&](int64_t i) { return (x[r * c + i] - (layer ? mean[r] : 0)) * rstd[r]; };
    for (int64_t i = 0; i < c; ++i) {
      const double gi = w[i] * d_y[r * c + i] / static_cast<double>(c);
      mean_g += layer ? gi : 0;
      abs_g += layer ? std::abs(gi) : 0;
      mean_gh += gi * h(i);
      abs_gh += std::abs(gi * h(i));
      g.d_w[i] += d_y[r * c + i] * h(i);
      g.mag_w[i] += std::abs(d_y[r * c + i] * h(i));
      g.d_b[i] += d_y[r * c + i];
      g.mag_b[i] += std::abs(d_y[r * c + i]);
    }
    for (int64_t i = 0; i < c; ++i) {
      const double gi = w[i] * d_y[r * c + i];
      g.d_x[r * c + i] = rstd[r] * (gi - mean_g - h(i) * mean_gh);
      g.mag_x[r * c + i] = rstd[r] * (std::abs(gi) + abs_g + std::abs(h(i)) * abs_gh);
    }
  }
  return g;
}

Vec rope(const Vec& x, int64_t pos, double theta, bool inverse) {
  const int64_t half = static_cast<int64_t>(x.size()) / 2;
  Vec y(x.size());
  for (int64_t i = 0; i < half; ++i) {
    double angle = static_cast<double>(pos) * std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    if (inverse) angle = -angle;
    y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
    y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
  }
  return y;
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double gelu_slope(double x) {
  const double k = std::sqrt(2 / std::numbers::pi), t = std::tanh(k * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x);
}

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

double cross_entropy(const Vec& logits, int64_t target) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double z : logits) sum += std::exp(z - max);
  return std::log(sum) + max - logits[target];
}

Vec cross_entropy_grad(const Vec& logits, int64_t target) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double z : logits) sum += std::exp(z - max);
  Vec g;
  for (double z : logits) g.push_back(std::exp(z - max) / sum);
  g[target] -= 1;
  return g;
}

Adam adamw(Adam s, double g, const AdamSettings& a) {
  g *= a.grad_scale;
  s.p *= 1 - a.lr * a.weight_decay;
  s.m = a.beta1 * s.m + (1 - a.beta1) * g;
  s.v = a.beta2 * s.v + (1 - a.beta2) * g * g;
  const double step = static_cast<double>(a.step);
  s.p -= a.lr / (1 - std::pow(a.beta1, step)) * s.m / (std::sqrt(s.v / (1 - std::pow(a.beta2, step))) + a.eps);
  return s;
}

}  // namespace ref
