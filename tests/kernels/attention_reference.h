// Causal attention in double precision, straight from the definition, with a bound on what rounding may do to each
// result.
//
// u is the unit roundoff of f32 sums (2^-24), w that of the type in which P, dS and the results are held (2^-24,
// 2^-8 for the 8 significant bits of bf16, 2^-11 for the 11 of f16, whose smallest results are off by up to 2^-25).
// A sum of n products errs by at most n u sum|a||b| (Higham 2002, section 3.1), so a score by e_s = (d+2) u scale
// sum|q||k|. exp2 is taken of a rounded argument: with the error of the exponential itself (below 2^-18) a probability
// is off by the factor 1 +- r, r = 2 e_s + 8 u (1 + max|s| + |lse|) + x, x = 2^-22 in f32 and f16, whose exponentials
// are those of f32, and 2^-17 in bf16.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/cpu/bf16.h"
#include "kernels/cpu/f16.h"
#include "kernels/ops.h"

namespace rw::test {

struct Shape {
  int64_t heads, kv_heads, d;
  std::vector<int32_t> lengths;

  std::vector<int32_t> cu_seqlens() const {
    std::vector<int32_t> cu{0};
    for (int32_t n : lengths) cu.push_back(cu.back() + n);
    return cu;
  }
  int64_t tokens() const { return cu_seqlens().back(); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(d)); }
};

// A number in [-1, 1) that depends on (seed, i) alone (the mixing of splitmix64, Steele et al. 2014).
inline double uniform(uint64_t seed, uint64_t i) {
  uint64_t z = (seed << 40) + (i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1;
}

inline float rounded(double x, DType t) {
  const float f = static_cast<float>(x);
  return t == DType::f32 ? f : t == DType::bf16 ? to_f32(to_bf16(f)) : to_f32(to_f16(f));
}

// (tokens, heads, d) tight, values that the type t holds exactly.
using Values = std::vector<double>;
inline Values random_values(uint64_t seed, int64_t n, double range, DType t) {
  Values v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<double>(rounded(range * uniform(seed, i), t));
  return v;
}

struct Inputs {
  Values q, k, v, d_o;
};
inline Inputs random_inputs(const Shape& s, DType t, double range = 2) {
  const int64_t n = s.tokens() * s.d;
  return {random_values(1, n * s.heads, range, t), random_values(2, n * s.kv_heads, range, t),
          random_values(3, n * s.kv_heads, 1, t), random_values(4, n * s.heads, 1, t)};
}

struct Bounded {
  Values value, bound;
  explicit Bounded(int64_t n) : value(static_cast<size_t>(n)), bound(static_cast<size_t>(n)) {}
};
struct Reference {
  Bounded o, lse, d_q, d_k, d_v;
};

// o and lse; and, when with_bwd, gradients for an o that was rounded to t.
inline Reference reference(const Shape& s, const Inputs& in, DType t, bool with_bwd, double scale) {
  const int64_t tokens = s.tokens(), d = s.d, group = s.heads / s.kv_heads;
  Reference r{Bounded(tokens * s.heads * d), Bounded(tokens * s.heads), Bounded(tokens * s.heads * d),
              Bounded(tokens * s.kv_heads * d), Bounded(tokens * s.kv_heads * d)};
  const double u = 0x1p-24, w = t == DType::f32 ? u : t == DType::bf16 ? 0x1p-8 : 0x1p-11;
  const double x = t == DType::bf16 ? 0x1p-17 : 0x1p-22, floor = t == DType::f16 ? 0x1p-25 : 1e-30;
  const std::vector<int32_t> cu = s.cu_seqlens();
  const auto at = [&](const Values& m, int64_t row, int64_t head, int64_t heads) {
    return &m[static_cast<size_t>((row * heads + head) * d)];
  };
  const auto to = [&](Values& m, int64_t row, int64_t head, int64_t heads) {
    return &m[static_cast<size_t>((row * heads + head) * d)];
  };
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += a[c] * b[c];
    return sum;
  };
  const auto dot_abs = [&](const double* a, const double* b) {
    double sum = 0;
    for (int64_t c = 0; c < d; ++c) sum += std::fabs(a[c] * b[c]);
    return sum;
  };
  for (size_t seq = 0; seq < s.lengths.size(); ++seq) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = cu[seq]; i < cu[seq + 1]; ++i) {
        const int64_t first = cu[seq], n = i - first + 1, kv = h / group, length = cu[seq + 1] - first;
        const double* q = at(in.q, i, h, s.heads);
        std::vector<double> p(static_cast<size_t>(n));
        double max = -INFINITY, max_abs = 0, e_s = 0, sum = 0;
        for (int64_t j = 0; j < n; ++j) {
          const double* k = at(in.k, first + j, kv, s.kv_heads);
          const double score = scale * dot(q, k);
          p[static_cast<size_t>(j)] = score;
          max = std::fmax(max, score);
          max_abs = std::fmax(max_abs, std::fabs(score));
          e_s = std::fmax(e_s, static_cast<double>(d + 2) * u * std::fabs(scale) * dot_abs(q, k));
        }
        for (double& v : p) sum += v = std::exp(v - max);
        for (double& v : p) v /= sum;
        const double lse = max + std::log(sum), rel = 2 * e_s + 8 * u * (1 + max_abs + std::fabs(lse)) + x;
        const double n_u = static_cast<double>(n + 8) * u;
        const auto ri = static_cast<size_t>(i * s.heads + h);
        r.lse.value[ri] = lse;
        r.lse.bound[ri] = rel + n_u + 4 * u * std::fabs(lse);
        double *o = to(r.o.value, i, h, s.heads), *bo = to(r.o.bound, i, h, s.heads);
        for (int64_t c = 0; c < d; ++c) {
          double magnitude = 0;
          for (int64_t j = 0; j < n; ++j) {
            const double pv = p[static_cast<size_t>(j)] * at(in.v, first + j, kv, s.kv_heads)[c];
            o[c] += pv;
            magnitude += std::fabs(pv);
          }
          bo[c] = (2 * rel + 2 * n_u + w) * magnitude + w * std::fabs(o[c]) + floor;
        }
        if (!with_bwd) continue;
        const double* d_o = at(in.d_o, i, h, s.heads);
        const double delta = dot(d_o, o), d_u = static_cast<double>(d + 4) * u;
        const double e_delta = (w + d_u) * dot_abs(d_o, o) + 1e-30;
        double *dq = to(r.d_q.value, i, h, s.heads), *bq = to(r.d_q.bound, i, h, s.heads);
        const double sums = static_cast<double>(length * group + 8) * u;
        for (int64_t j = 0; j < n; ++j) {
          const double *k = at(in.k, first + j, kv, s.kv_heads), *v = at(in.v, first + j, kv, s.kv_heads);
          const double pj = p[static_cast<size_t>(j)], d_p = dot(d_o, v), d_s = pj * (d_p - delta);
          const double e_p = rel + w;  // relative
          const double e_ds = pj * (rel * (std::fabs(d_p) + std::fabs(delta)) + d_u * dot_abs(d_o, v) + e_delta) +
                              (w + sums) * std::fabs(d_s);
          double *dk = to(r.d_k.value, first + j, kv, s.kv_heads), *bk = to(r.d_k.bound, first + j, kv, s.kv_heads);
          double *dv = to(r.d_v.value, first + j, kv, s.kv_heads), *bv = to(r.d_v.bound, first + j, kv, s.kv_heads);
          for (int64_t c = 0; c < d; ++c) {
            dq[c] += scale * d_s * k[c];
            bq[c] += std::fabs(scale * k[c]) * 2 * e_ds;
            dk[c] += scale * d_s * q[c];
            bk[c] += std::fabs(scale * q[c]) * 2 * e_ds;
            dv[c] += pj * d_o[c];
            bv[c] += std::fabs(pj * d_o[c]) * 2 * (e_p + sums);
          }
        }
      }
    }
  }
  if (with_bwd) {
    for (Bounded* g : {&r.d_q, &r.d_k, &r.d_v}) {
      for (size_t i = 0; i < g->value.size(); ++i) g->bound[i] += 2 * w * std::fabs(g->value[i]) + floor;
    }
  }
  return r;
}

}  // namespace rw::test
