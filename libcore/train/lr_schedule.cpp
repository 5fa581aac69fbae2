#include "libcore/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rw {

double batch_scaled_lr(const TrainSpec& spec, int64_t global_batch) {
  if (spec.lr_base_batch == 0 || spec.lr_batch_rule == "none") return spec.lr;
  const double ratio = static_cast<double>(global_batch) / static_cast<double>(spec.lr_base_batch);
  return spec.lr * (spec.lr_batch_rule == "sqrt" ? std::sqrt(ratio) : ratio);
}

double lr_at(const TrainSpec& spec, double peak_lr, int64_t step) {
  if (step <= spec.warmup_steps) return peak_lr * static_cast<double>(step) / static_cast<double>(spec.warmup_steps);
  if (spec.lr_schedule == "constant") return peak_lr;
  int64_t decay_from = spec.warmup_steps;
  if (spec.lr_schedule == "wsd") {
    const int64_t decay_steps = spec.decay_steps > 0 ? spec.decay_steps : std::max<int64_t>(1, spec.steps / 5);
    decay_from = std::max(decay_from, spec.steps - decay_steps);
  }
  if (step <= decay_from) return peak_lr;
  const double span = static_cast<double>(std::max<int64_t>(1, spec.steps - decay_from));
  const double progress = std::min(1.0, static_cast<double>(step - decay_from) / span);
  const double min_lr = std::min(spec.min_lr, peak_lr);
  const double keep =
      spec.lr_schedule == "cosine" ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress)) : 1.0 - progress;
  return min_lr + (peak_lr - min_lr) * keep;
}

}  // namespace rw
