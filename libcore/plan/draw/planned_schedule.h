// The pipeline of a planned training, to look at.
#pragma once
#include "libcore/plan/draw/schedule_view.h"
#include "libcore/plan/search/plan_spec.h"

namespace rw {

// A prediction's timeline (made with keep_timeline) with the memory of its stages in closed form: what is there all the
// time, and the activations, shared out over the micro-batches and chunks that are alive at a stage's fullest moment in
// proportion to the chunks' layers. Error{usage} for a layout without a pipeline.
ScheduleView planned_schedule(const PlanInputs& inputs, const Prediction& plan);

}  // namespace rw
