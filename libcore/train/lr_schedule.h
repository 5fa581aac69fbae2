// The learning rate as a pure function of the step.
#pragma once
#include <cstdint>

#include "libcore/spec/train_spec.h"

namespace rw {

// --lr after --lr-batch-rule: unchanged, or times global_batch / lr_base_batch (linear; Goyal et al. 2017), or its
// square root.
double batch_scaled_lr(const TrainSpec& spec, int64_t global_batch);

// step = 1 for the first. Linear warm-up to peak_lr over warmup_steps, then the schedule, which reaches min_lr at
// `steps`: cosine (Loshchilov & Hutter 2017), linear, wsd (Hu et al. 2024: the peak, then linear decay over
// decay_steps), constant.
double lr_at(const TrainSpec& spec, double peak_lr, int64_t step);

}  // namespace rw
