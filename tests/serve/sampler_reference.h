// What Sampler must do, in naive double precision over the whole vocabulary.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <vector>

#include "libcore/serve/sampler.h"

namespace rw::ref {

inline std::vector<double> log_softmax(const std::vector<float>& z) {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float x : z) max = std::max(max, static_cast<double>(x));
  for (const float x : z) sum += std::exp(static_cast<double>(x) - max);
  std::vector<double> out;
  for (const float x : z) out.push_back(static_cast<double>(x) - max - std::log(sum));
  return out;
}

inline std::vector<float> after_rules(std::vector<float> z, const SamplingParams& p, const TokenCounts& counts,
                                      int64_t n_output) {
  for (size_t i = 0; i < z.size(); ++i) {
    const int32_t id = static_cast<int32_t>(i);
    for (const auto& [which, bias] : p.logit_bias)
      if (which == id) z[i] += bias;
    if (n_output < p.min_tokens && std::count(p.ends.begin(), p.ends.end(), id) > 0)
      z[i] = -std::numeric_limits<float>::infinity();
    const auto output = counts.output.find(id);
    const int32_t n_out = output == counts.output.end() ? 0 : output->second;
    const float r = static_cast<float>(p.repetition_penalty);
    if (n_out > 0 || counts.prompt.contains(id)) z[i] = z[i] > 0 ? z[i] / r : z[i] * r;
    if (n_out > 0) z[i] -= static_cast<float>(p.frequency_penalty * n_out + p.presence_penalty);
  }
  return z;
}

// (V) probability of each token; z after the rules.
inline std::vector<double> distribution(const std::vector<float>& z, const SamplingParams& p) {
  std::vector<size_t> order(z.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return z[a] > z[b]; });
  std::vector<double> w(z.size());
  if (p.greedy()) {
    w[order[0]] = 1;
    return w;
  }
  const double max = static_cast<double>(z[order[0]]);
  for (size_t i = 0; i < z.size(); ++i) w[i] = std::exp((static_cast<double>(z[i]) - max) / p.temperature);
  const auto drop_from = [&](size_t k) {
    for (; k < order.size(); ++k) w[order[k]] = 0;
  };
  const auto min_p_end = std::find_if(order.begin(), order.end(), [&](size_t i) { return w[i] < p.min_p; });
  drop_from(static_cast<size_t>(min_p_end - order.begin()));
  if (p.top_k > 0) drop_from(static_cast<size_t>(p.top_k));
  double total = std::accumulate(w.begin(), w.end(), 0.0);
  if (p.top_p < 1) {
    double kept = 0;
    size_t k = 0;
    do kept += w[order[k++]];
    while (k < order.size() && kept < p.top_p * total);
    drop_from(k);
    total = std::accumulate(w.begin(), w.end(), 0.0);
  }
  for (double& x : w) x /= total;
  return w;
}

// The tokens an inverse-CDF draw with `uniform` may give when sums are off by `slack`.
inline std::set<int32_t> draws_near(const std::vector<double>& p, double uniform, double slack) {
  std::set<int32_t> ids;
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) continue;
    if (uniform > sum - slack && uniform < sum + p[i] + slack) ids.insert(static_cast<int32_t>(i));
    sum += p[i];
  }
  return ids;
}

}  // namespace rw::ref
