// AdamW over the flat parameter buffer, and the gradient's global norm.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"
#include "libcore/model/param_layout.h"

namespace rw {

struct AdamSettings {
  float beta1, beta2, eps, weight_decay;
};

class Optimizer {
 public:
  Optimizer(const ParamLayout& layout, const AdamSettings& settings, Arena& arena, int threads);
  // Global L2 norm of grads, every parameter once: f64 partials of fixed blocks, added in table order.
  double grad_norm(const float* grads, const Exec& exec);
  // One update of params; grad_scale multiplies the gradient (clipping). Counts its own steps.
  void step(float* params, const float* grads, double lr, double grad_scale, const Exec& exec);
  int64_t steps_taken() const { return steps_; }
  void set_steps_taken(int64_t steps) { steps_ = steps; }
  float* m() { return m_; }
  float* v() { return v_; }

 private:
  const ParamLayout& layout_;
  AdamSettings settings_;
  float *m_, *v_;  // (layout.total())
  std::vector<double> partials_;
  int64_t steps_ = 0;
};

// What the gradient is multiplied by so that its norm is at most clip_norm (0: never clipped).
double clip_scale(double grad_norm, double clip_norm);

}  // namespace rw
