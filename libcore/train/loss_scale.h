// Dynamic loss scaling for f16 (Micikevicius et al. 2018, section 3.2): gradients too small for f16 survive because the
// loss is multiplied by a scale, which the optimizer divides out again. The scale is as large as overflows let it be.
#pragma once
#include <cstdint>
#include <string>

#include "libcore/base/json.h"

namespace rw {

// Pure: the same overflows give the same scales. An overflow halves the scale (never below kFloor) and its step is
// skipped; `window` steps in a row without one double it, unless that leaves f32. The history is PyTorch's
// GradScaler's.
class LossScale {
 public:
  static constexpr double kFloor = 1.0;

  LossScale(double initial, int64_t window);
  float scale() const { return static_cast<float>(scale_); }
  // After a step: whether any rank's scaled gradients were not finite.
  void observe(bool overflow);

  Json state() const;  // for the checkpoint: {"scale", "good_steps"}
  // Error{input} names `where` and the key that is missing or out of range.
  void restore(const Json& state, const std::string& where);

 private:
  double scale_;
  int64_t window_, good_steps_ = 0;
};

}  // namespace rw
