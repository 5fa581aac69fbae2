// What one rank does in a training step, as lists of ops with their shapes and of collectives: taken from dry runs of
// the real trainer with few layers, each kind of layer once, and put together for any number of layers and
// micro-batches. Ranks are those of tensor-parallel rank 0.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/op_log.h"
#include "libcore/comm/watch.h"
#include "libcore/spec/layout.h"

namespace rw {

struct CommWork {
  CommKind kind;
  std::string group;  // "tp", "shard", ...: the mesh's names
  int64_t calls = 0;
  double bytes = 0;  // of one call
};
// One pass over one thing for one micro-batch (or, of the optimizer, a step).
struct Work {
  std::vector<OpCall> ops;  // equal calls are one entry with a count
  std::vector<CommWork> comm;
  double flops() const;
  double bytes() const;  // read and written by ops
  // Adds `times` of it; negative times take away what must be there.
  Work& add(const Work& other, int64_t times = 1);
};

// By layer and micro-batch, for one (tp, sp, micro_batch, seq_len, recompute, precision).
struct LayerWork {
  Work forward, backward;  // without recomputation; the backward is both halves
  Work backward_weight;    // of backward, the weights' half
  Work recompute;          // what the backward does again before
};
struct StepWork {
  LayerWork layer;           // any layer but the first of a chunk
  Work first_layer_forward;  // of a chunk's first layer, which need not add up the residual stream; all else is alike
  Work chunk_output;         // forward: the sum at a chunk's end
  Work embedding_forward, embedding_backward;
  Work head;      // loss: forward and backward
  Work per_step;  // once a step beside the optimizer: of the norm. Its collectives are dp_traffic's
  // Once a step, of one layer's and of the ends' parameters without ZeRO: gradient norm, AdamW, packing. With one stage
  // embedding_update is of both ends, and head_update empty.
  Work layer_update, embedding_update, head_update;
  // Of AdamW and the gradient norm, for one parameter that this rank updates.
  double optimizer_flops = 0, optimizer_bytes = 0;
  double pack_bytes = 0;                     // read and written to pack the weights, for one parameter of the rank
  double params_layer = 0, params_ends = 0;  // a rank's own share (after tp), of a layer; embedding + head
};

struct WorkQuery {
  const ModelSpec& model;
  int64_t tp = 1;
  bool sp = false;
  Recompute recompute = Recompute::none;
  int64_t micro_batch = 1, seq_len = 1;
  DType t = DType::bf16;
  const Ops& backend;  // whose sizes memory is counted with
  int threads = 1;
  bool split_backward = false;          // weight gradients apart, as zb-h1 has them
  Write gradients = Write::accumulate;  // overwrite: of a step's first micro-batch; under ZeRO 2 and 3 of each
  bool one_stage = false;               // both ends on one rank
};
StepWork step_work(const WorkQuery& query);

// What a layout's steps are put together from: of its first and of its later micro-batches, of layers that are
// recomputed and of those that are not.
struct WorkParts {
  StepWork first, later, first_recomputed, later_recomputed;
};
struct WorkTerms {
  const ModelSpec& model;
  const Layout& layout;
  DType t = DType::bf16;
  const Ops& backend;
  int threads = 1;
};
WorkParts work_parts(const WorkTerms& terms);
// All ops of a step on a rank of `stage`, and its tensor-parallel collectives inside micro-batches. Without what ZeRO
// adds: sums of slices (2, 3) and packing at every lease (3); with ZeRO the update is of all parameters.
Work stage_work(const WorkParts& parts, const Layout& layout, int64_t stage);
double stage_flops(const WorkParts& parts, const Layout& layout, int64_t stage);  // of the same, without the lists

// Collectives once a step (or, of ZeRO 2 and 3, for each micro-batch) of a rank of `stage`: groups "shard", "replica",
// "ends", "kv", the sums of the norms' gradients over "tp", and the step's scalars over "world", "tp", "pp_backward".
// A group of one rank has none.
std::vector<CommWork> dp_traffic(const ModelSpec& model, const Layout& layout, int64_t stage, int64_t ranks_per_node);

}  // namespace rw
