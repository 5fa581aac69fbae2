#include "libcore/serve/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "libcore/base/error.h"
#include "libcore/base/rng.h"

namespace rw {

int32_t Sampler::sample(const float* logits, int64_t v, const SamplingParams& params, int64_t position) {
  if (!std::all_of(logits, logits + v, [](float z) { return z < std::numeric_limits<float>::infinity(); }))
    fail(ErrorKind::runtime,
         "the model's logits at position {} are not finite: its weights are damaged or the run that made them diverged",
         position);
  const float* best = std::max_element(logits, logits + v);
  if (params.temperature <= 0) return static_cast<int32_t>(best - logits);
  candidates_.clear();
  for (int64_t i = 0; i < v; ++i) {
    const double z = (static_cast<double>(logits[i]) - static_cast<double>(*best)) / params.temperature;
    if (z > -80) candidates_.push_back({.weight = std::exp(z), .id = static_cast<int32_t>(i)});
  }
  const auto heavier = [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.id < b.id;
  };
  size_t n = candidates_.size();
  if (params.top_k > 0 && static_cast<size_t>(params.top_k) < n) {
    n = static_cast<size_t>(params.top_k);
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(n), candidates_.end(),
                     heavier);
  }
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(n);
  std::sort(candidates_.begin(), end, heavier);
  double total = 0;
  for (auto c = candidates_.begin(); c != end; ++c) total += c->weight;
  if (params.top_p < 1) {
    // The smallest set whose share reaches top_p; the heaviest is always in it.
    double kept = 0;
    auto c = candidates_.begin();
    do kept += (c++)->weight;
    while (c != end && kept < params.top_p * total);
    n = static_cast<size_t>(c - candidates_.begin());
    total = kept;
  }
  double left = random_uniform(rng_key(params.seed, "sample"), static_cast<uint64_t>(position)) * total;
  for (size_t i = 0; i + 1 < n; ++i) {
    left -= candidates_[i].weight;
    if (left < 0) return candidates_[i].id;
  }
  return candidates_[n - 1].id;
}

}  // namespace rw
