// Compiled once per instruction set: see kernels/cpu/simd.h for what may stand here.
#include "libcore/serve/sampler_lanes.h"

#include "kernels/cpu/simd.h"

namespace rw::RW_ISA {
namespace {
constexpr float kInf = __builtin_inff();

RW_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

bool maxima(const float* z, int64_t n, float* max, float* block_max) {
  vi bad = {};
  float largest = -kInf;
  for (int64_t b = 0; b < n; b += kMaxBlock) {
    const int64_t end = least(b + kMaxBlock, n);
    vf m = splat(-kInf);
    int64_t i = b;
    for (; i + kW <= end; i += kW) {
      const vf x = load(z + i);
      m = x > m ? x : m;
      bad |= ~(x < kInf);
    }
    if (i < end) {
      float last[kW];
      for (int64_t j = 0; j < kW; ++j) last[j] = i + j < end ? z[i + j] : -kInf;
      const vf x = load(last);
      m = x > m ? x : m;
      bad |= ~(x < kInf);
    }
    const float top = hmax(m);
    block_max[b / kMaxBlock] = top;
    largest = top > largest ? top : largest;
  }
  *max = largest;
  int32_t any = 0;
  for (int64_t j = 0; j < kW; ++j) any |= bad[j];
  return any == 0;
}

RW_INLINE vf weight(vf z, float max, float inv_t) {
  const vf x = (z - max) * inv_t;
  return x < kLeastExponent ? splat(0.0f) : vexp(x);
}

double sums(const float* z, int64_t n, float max, float inv_t, double* block_sum) {
  double total = 0;
  for (int64_t b = 0; b < n; b += kSumBlock) {
    const int64_t end = least(b + kSumBlock, n);
    vf sum = {};
    int64_t i = b;
    for (; i + kW <= end; i += kW) sum += weight(load(z + i), max, inv_t);
    if (i < end) {
      float last[kW];
      for (int64_t j = 0; j < kW; ++j) last[j] = i + j < end ? z[i + j] : -kInf;
      sum += weight(load(last), max, inv_t);
    }
    const double s = static_cast<double>(hsum(sum));
    block_sum[b / kSumBlock] = s;
    total += s;
  }
  return total;
}

double kept(const float* z, int64_t n, float max, float inv_t, float from, float* w) {
  vf sum = {};
  int64_t i = 0;
  for (; i + kW <= n; i += kW) {
    const vf x = load(z + i), y = x >= from ? weight(x, max, inv_t) : splat(0.0f);
    store(w + i, y);
    sum += y;
  }
  if (i < n) {
    float last[kW];
    for (int64_t j = 0; j < kW; ++j) last[j] = i + j < n ? z[i + j] : -kInf;
    const vf x = load(last), y = x >= from ? weight(x, max, inv_t) : splat(0.0f);
    store(last, y);
    for (int64_t j = 0; i + j < n; ++j) w[i + j] = last[j];
    sum += y;
  }
  return static_cast<double>(hsum(sum));
}

void probe(const float* z, int64_t n, float max, float inv_t, const float (&at)[kProbes], Probe (&probe)[kProbes]) {
  constexpr int64_t kBlock = 1024, kTogether = 4;
  for (Probe& p : probe) p = {.mass = 0, .count = 0};
  float block_z[kBlock], block_w[kBlock];
  vi counts[kProbes] = {};
  for (int64_t b = 0; b < n; b += kBlock) {
    const int64_t len = least(kBlock, n - b), padded = (len + kW - 1) / kW * kW;
    for (int64_t i = 0; i < padded; i += kW) {
      vf x = splat(-kInf);
      if (i + kW <= len) x = load(z + b + i);
      else
        for (int64_t j = 0; i + j < len; ++j) x[j] = z[b + i + j];
      store(block_z + i, x);
      store(block_w + i, weight(x, max, inv_t));
    }
    for (int64_t k = 0; k < kProbes; k += kTogether) {
      vf mass[kTogether] = {};
      vi count[kTogether] = {};
      for (int64_t i = 0; i < padded; i += kW) {
        const vf x = load(block_z + i), w = load(block_w + i);
        for (int64_t t = 0; t < kTogether; ++t) {
          const vi in = x >= at[k + t];  // -1 where true
          mass[t] += as_float(as_int(w) & in);
          count[t] -= in;
        }
      }
      for (int64_t t = 0; t < kTogether; ++t) {
        probe[k + t].mass += static_cast<double>(hsum(mass[t]));
        counts[k + t] += count[t];
      }
    }
  }
  for (int64_t k = 0; k < kProbes; ++k)
    for (int64_t j = 0; j < kW; ++j) probe[k].count += counts[k][j];
}
}  // namespace

extern const LaneOps sampler_lanes;
const LaneOps sampler_lanes = {.maxima = maxima, .sums = sums, .kept = kept, .probe = probe};

}  // namespace rw::RW_ISA
