// What a layout's groups move in a training step, from the dry run: by direction, for placing ranks.
#pragma once
#include "libcore/plan/step_work.h"

namespace rw {

// Bytes of a step. Of collectives: all-reduced by one group (a reduce_scatter or an all_gather counts as half of an
// all_reduce of the same bytes, which it is). shard, replica: the data-parallel groups that ZeRO shards over and those
// across them (MeshShape::shard; without ZeRO all is replica). pp: sent from one stage to the next by one pipeline,
// both ways together.
struct StepBytes {
  double tp = 1, shard = 1, replica = 1, pp = 1;
};
// Of the stage that moves most in each direction; the layout is settled.
StepBytes step_bytes(const WorkTerms& terms, int64_t ranks_per_node);

}  // namespace rw
