// What a request changes in the model's logits before a token is chosen.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/serve/sampler.h"

namespace rw {

// A logit as the model gave it, where a rule has changed it.
struct ChangedLogit {
  int64_t column;
  float raw;
};

// Applies logit_bias, the mask of `ends`, and the penalties to the columns `mine` of a row, in that order. changed gets
// the columns touched, rising, each once. False: a masked logit was not finite, which would no longer show.
bool apply_rules(const SampleRow& row, VocabRange mine, std::vector<ChangedLogit>& changed);

// The model's own logit of a column.
float raw_logit(const float* logits, const std::vector<ChangedLogit>& changed, int64_t column);

}  // namespace rw
