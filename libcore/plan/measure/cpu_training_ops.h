// What training's products and attention reach on this CPU, next to its peak: what `discover` starts a calibration
// from.
#pragma once
#include <cstdint>

#include "kernels/ops.h"

namespace rw {

struct TrainingOpsJob {
  DType t = DType::bf16;
  int threads = 1;
  double seconds = 0.3;  // of each measurement
};
// FLOP/s of a linear layer's three products (forward, input gradient with packed weights; weight gradient added up in
// f32) of `size` columns in and out over 1,024 rows.
double linear_layer_flops(const TrainingOpsJob& job, int64_t size);
// FLOP/s of causal attention's forward and backward (2 + 5 products of a half each): 8 sequences of 256, 4 heads of 64.
double attention_flops(const TrainingOpsJob& job);

// From the speeds at two sizes: what a large product reaches, and the size that reaches half of it:
// speed(size) = large * size / (size + half).
struct SizeLaw {
  double large = 0, half = 0;
};
SizeLaw size_law(double small_size, double small_speed, double large_size, double large_speed);

}  // namespace rw
