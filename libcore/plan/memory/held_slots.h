// live_of(pipeline_actions(shape, stage)) without the actions: how much a schedule holds at a time, in closed form.
#pragma once
#include "libcore/schedule/pipeline.h"

namespace rw {

// By chunk. GPipe: all micro-batches (Huang et al. 2019). 1F1B: one for the stage and each later one (Narayanan et al.
// 2019); ZB-H1 holds on every stage what 1F1B holds on the first (Qi et al. 2023). Several chunks: the most over one
// turn of the interleaved order, which repeats (Narayanan et al. 2021); micro-batches that do not make whole groups do
// not repeat and are counted action by action.
std::vector<Live> held_slots(const PipelineShape& shape, int stage);

}  // namespace rw
