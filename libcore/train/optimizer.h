// AdamW over the pieces of parameters that a rank updates.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/device/arena.h"
#include "libcore/model/exec.h"
#include "libcore/train/grad_sync.h"
#include "libcore/train/weight_store.h"

namespace rw {

struct AdamSettings {
  float beta1, beta2, eps, weight_decay;
};

class Optimizer {
 public:
  Optimizer(const ParamLayout& layout, const Shards& shards, const AdamSettings& settings, Arena& arena, int threads);
  // One update of this rank's pieces; grad_scale multiplies the gradient (clipping, loss scale). Counts its own steps.
  struct Step {
    double lr, grad_scale;
  };
  void step(WeightStore& weights, const GradSync& grads, const Step& step, const Exec& exec);
  int64_t steps_taken() const { return steps_; }
  void set_steps_taken(int64_t steps) { steps_ = steps; }
  float* m() { return m_; }  // (shards.shard_total())
  float* v() { return v_; }

 private:
  const ParamLayout& layout_;
  const Shards& shards_;
  AdamSettings settings_;
  float *m_, *v_;
  int64_t steps_ = 0;
};

// What the gradient is multiplied by so that its norm is at most clip_norm (0: never clipped).
double clip_scale(double grad_norm, double clip_norm);

}  // namespace rw
