// Bytes of activations and workspace, asked of the classes that take them: by part, for stages put together from any
// number of them.
#pragma once
#include <cstdint>

#include "kernels/ops.h"
#include "libcore/spec/layout.h"

namespace rw {

struct StageParts {
  double base = 0;                         // what every stage has, before any slot
  double recompute = 0;                    // more where some layers are recomputed: what they share
  double head = 0;                         // more where the head is
  double slot = 0;                         // of a chunk's slot without layers
  double d_input = 0;                      // of a slot, more where the chunk is not the model's first
  double input = 0;                        // a layer's own input, of each layer but a chunk's first
  double layer = 0, recomputed_layer = 0;  // of a slot
  double weight_slot = 0;                  // split backward: of what a weight half waits with, without layers
  double weight_layer = 0, weight_recomputed_layer = 0;
  double tensor_parallel = 0;  // buffers of collectives
  double workspace = 0, workspace_head = 0;
};

struct StagePartsQuery {
  const ModelSpec& model;
  int64_t tp = 1;
  bool sp = false;
  Recompute recompute = Recompute::none;
  int64_t micro_batch = 1, seq_len = 1;
  DType t = DType::bf16;
  const Ops& backend;
  int threads = 1;
};
StageParts stage_parts(const StagePartsQuery& query);

}  // namespace rw
