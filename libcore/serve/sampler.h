// From logits to a token: temperature, top-k, top-p (nucleus; Holtzman et al. 2020), a random number of its own per
// request and position, so that neighbours in a batch change nothing.
#pragma once
#include <cstdint>
#include <vector>

namespace rw {

struct SamplingParams {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // 0: all
  double top_p = 1.0;
  uint64_t seed = 0;
};

class Sampler {
 public:
  // logits (v) are read only. `position` is the index of the token in its sequence. Greedy takes the lowest id among
  // equals.
  int32_t sample(const float* logits, int64_t v, const SamplingParams& params, int64_t position);

 private:
  struct Candidate {
    double weight;
    int32_t id;
  };
  std::vector<Candidate> candidates_;
};

}  // namespace rw
