// Linear layers: y = x W^T + b with W (n_out, n_in), packed once per optimizer step for both directions.
#pragma once
#include <cstdint>

#include "libcore/model/exec.h"

namespace rw {

// How `fwd` holds a weight: in the type of the activations, or in 8 or 4 bits by groups (kernels/ops.h, QuantPack).
enum class WeightFormat : uint8_t { plain, int8, int4 };

// A weight as the products read it. `fwd` packs W^T as the right operand of x W^T, `bwd` packs W as that of d_y W (null
// in inference, and not made by tables that have one copy for both). master is the f32 weight both are made from; what
// packs needs it, the products do not.
struct PackedLinear {
  const float* master = nullptr;  // (n_out, n_in)
  const float* bias = nullptr;    // (n_out) or null
  void* fwd = nullptr;
  void* bwd = nullptr;
  int64_t n_out = 0, n_in = 0;
  int64_t ld_out = 0;  // row stride of y and d_y, in elements; 0: n_out. Plain weights, without GELU
  WeightFormat format = WeightFormat::plain;
  int64_t group = 0;  // elements of n_in to a scale, with int8 and int4; 0: default_quant_group
};

int64_t packed_fwd_bytes(const PackedLinear& w, const Exec& exec);
int64_t packed_bwd_bytes(const PackedLinear& w, const Exec& exec);
// The table's forward copy is the plain matrix, and serves the backward as it lies.
bool has_one_copy(const PackedLinear& w, const Exec& exec);
// Makes fwd, or bwd, from the master weight; nothing where that is null, or not to be made.
void pack_fwd(const PackedLinear& w, const Exec& exec);
void pack_bwd(const PackedLinear& w, const Exec& exec);

void linear_fwd(void* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec);  // y (rows, n_out)
// The same with the sums as they are.
void linear_fwd_f32(float* y, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec);
// y, and act = gelu(y), which may lie in y's place. (rows, n_out)
struct GeluOutput {
  void *y, *act;
};
void linear_gelu_fwd(const GeluOutput& out, const void* x, int64_t rows, const PackedLinear& w, const Exec& exec);
void linear_bwd_input(void* d_x, const void* d_y, int64_t rows, const PackedLinear& w,
                      const Exec& exec);  // d_x (rows, n_in)
// The gradient of `of` where x = gelu(of). (rows, n_in)
struct GeluInputGrad {
  void* d_of;
  const void* of;
};
void linear_gelu_bwd_input(const GeluInputGrad& grad, const void* d_y, int64_t rows, const PackedLinear& w,
                           const Exec& exec);

// d_w (n_out, n_in) and, when not null, d_b (n_out) are written or accumulated.
struct LinearGrad {
  float* d_w;
  float* d_b;
  Write write;
};
void linear_bwd_weight(const LinearGrad& grad, const void* d_y, const void* x, int64_t rows, const PackedLinear& w,
                       const Exec& exec);

// Scratch that the forward product of a linear layer of this size and format needs.
int64_t linear_fwd_workspace_bytes(int64_t rows, const PackedLinear& w, const Exec& exec);
// Scratch that its three products need at most; of a quantised weight there is only the forward.
int64_t linear_workspace_bytes(int64_t rows, const PackedLinear& w, const Exec& exec);

}  // namespace rw
