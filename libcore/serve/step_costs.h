// What steps have cost lately, and from it how many prefill tokens a step may take beside running decodes so that their
// rhythm holds. Pure: it is told durations.
#pragma once
#include <cstdint>

namespace rw {

class StepCosts {
 public:
  // A step of so many decoding sequences and prefill tokens took `seconds`.
  void add(int64_t decodes, int64_t prefill_tokens, double seconds);
  // Prefill tokens that fit into `budget_s` beside `decodes`, between least and most.
  int64_t chunk(int64_t decodes, double budget_s, int64_t least, int64_t most) const;
  double decode_step_s(int64_t decodes) const;  // estimates; 0: nothing known
  double prefill_s_per_token() const { return prefill_s_; }

 private:
  double base_s_ = 0, per_decode_s_ = 0;  // a step of n decodes: base + n * per_decode
  double last_n_ = 0, last_s_ = 0;
  double prefill_s_ = 0;
};

}  // namespace rw
