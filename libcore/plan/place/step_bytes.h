// What a layout's groups move in a training step, from the dry run: by direction, for placing ranks.
#pragma once
#include "libcore/plan/price/step_work.h"

namespace rw {

// Bytes of a step. Of collectives: all-reduced by one group (a reduce_scatter or an all_gather counts as half of an
// all_reduce of the same bytes, which it is). shard, replica: the data-parallel groups that ZeRO shards over and those
// across them (MeshShape::shard; without ZeRO all is replica). pp: sent from one stage to the next by one pipeline,
// both ways together.
//
// The defaults are proportions for when there is no model, in units of what a pipeline sends: of Llama 2 70B (80
// layers, 8192 wide, 4096 tokens) with tp 8, pp 4 and 8 micro-batches: 4 all_reduces a layer and micro-batch of 64 MiB,
// 20 layers a stage; gradients of 2.2e9 parameters in 4 bytes; 64 MiB a micro-batch both ways.
struct StepBytes {
  double tp = 40, shard = 8, replica = 8, pp = 1;
};
// Of the stage that moves most in each direction; the layout is settled.
StepBytes step_bytes(const WorkTerms& terms, int64_t ranks_per_node);

}  // namespace rw
