// Linear layers: y = x W^T + b with W (n_out, n_in), packed once per optimizer step for both directions.
#pragma once
#include <cstdint>

#include "libcore/model/exec.h"

namespace rw {

// A weight as the products read it. `fwd` packs W^T as the right operand of x W^T, `bwd` packs W as that of d_y W (null
// in inference). master is the f32 weight both are made from.
struct PackedLinear {
  const float* master = nullptr;  // (n_out, n_in)
  const float* bias = nullptr;    // (n_out) or null
  void* fwd = nullptr;
  void* bwd = nullptr;
  int64_t n_out = 0, n_in = 0;
};

int64_t packed_fwd_bytes(const PackedLinear& w, const Exec& exec);
int64_t packed_bwd_bytes(const PackedLinear& w, const Exec& exec);
// Makes fwd, or bwd, from the master weight; nothing where that is null.
void pack_fwd(const PackedLinear& w, const Exec& exec);
void pack_bwd(const PackedLinear& w, const Exec& exec);

void linear_fwd(void* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec);  // y (rows, n_out)
void linear_bwd_input(void* d_x, const void* d_y, int64_t rows, const PackedLinear& w,
                      const Exec& exec);  // d_x (rows, n_in)

// d_w (n_out, n_in) and, when not null, d_b (n_out) are written or accumulated.
struct LinearGrad {
  float* d_w;
  float* d_b;
  Write write;
};
void linear_bwd_weight(const LinearGrad& grad, const void* d_y, const void* x, int64_t rows, const PackedLinear& w,
                       const Exec& exec);

// Scratch that the three products of a linear layer of this size need at most.
int64_t linear_workspace_bytes(int64_t rows, const PackedLinear& w, const Exec& exec);

}  // namespace rw
