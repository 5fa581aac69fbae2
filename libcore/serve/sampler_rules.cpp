#include "libcore/serve/sampler_rules.h"

#include <algorithm>
#include <limits>

namespace rw {

bool apply_rules(const SampleRow& row, VocabRange mine, std::vector<ChangedLogit>& changed) {
  const SamplingParams& p = *row.params;
  bool finite = true;
  changed.clear();
  const auto is_mine = [&](int32_t id) { return id >= mine.begin && id < mine.end; };
  const auto touch = [&](int32_t id) -> float& {
    float& z = row.logits[id - mine.begin];
    changed.push_back({.column = id - mine.begin, .raw = z});
    return z;
  };
  for (const auto& [id, bias] : p.logit_bias)
    if (is_mine(id)) touch(id) += bias;
  if (row.n_output < p.min_tokens)
    for (const int32_t id : p.ends) {
      if (!is_mine(id)) continue;
      float& z = touch(id);
      finite = finite && z < std::numeric_limits<float>::infinity();
      z = -std::numeric_limits<float>::infinity();
    }
  if (row.counts != nullptr) {
    const float repetition = static_cast<float>(p.repetition_penalty);
    const auto repeated = [&](float z) { return z > 0 ? z / repetition : z * repetition; };
    if (p.repetition_penalty != 1)
      for (const auto& [id, n] : row.counts->prompt)
        if (is_mine(id) && !row.counts->output.contains(id)) {
          float& z = touch(id);
          z = repeated(z);
        }
    if (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0)
      for (const auto& [id, n] : row.counts->output)
        if (is_mine(id)) {
          float& z = touch(id);
          z = repeated(z) - static_cast<float>(p.frequency_penalty * n + p.presence_penalty);
        }
  }
  // Of a column touched by several rules the first record is the model's.
  std::stable_sort(changed.begin(), changed.end(), [](auto& a, auto& b) { return a.column < b.column; });
  changed.erase(std::unique(changed.begin(), changed.end(), [](auto& a, auto& b) { return a.column == b.column; }),
                changed.end());
  return finite;
}

float raw_logit(const float* logits, const std::vector<ChangedLogit>& changed, int64_t column) {
  const auto c = std::lower_bound(changed.begin(), changed.end(), column,
                                  [](const ChangedLogit& a, int64_t b) { return a.column < b; });
  return c != changed.end() && c->column == column ? c->raw : logits[column];
}

}  // namespace rw
