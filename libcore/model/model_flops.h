// What a model costs to train, whatever the layout.
#pragma once
#include <cstdint>

#include "libcore/spec/model_spec.h"

namespace rw {

// Floating-point operations of one training step's forward and backward per token of a sequence of seq_len (3x
// forward), from the ops' own prices. Attention counted in full (T^2) or causally (T^2/2).
struct ModelFlops {
  double full, causal;
};
ModelFlops training_flops_per_token(const ModelSpec& spec, int64_t seq_len);

}  // namespace rw
