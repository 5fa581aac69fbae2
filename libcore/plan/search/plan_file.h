// A plan file as `dplan train -o` writes it and `dtrain --config` takes it, read again as the pins of a question; and
// the one layout that pins mean.
#pragma once
#include <string>

#include "libcore/plan/search/plan_spec.h"

namespace rw {

// Sets what the file says of model, batch and layout, and the number of nodes that it was planned for; keys that plan
// nothing (learning rate, data) are checked and passed over. Returns its stage-layers ("": dealt by work).
// Error{usage} for keys that `dtrain` does not know, and without seq-len and global-batch.
std::string read_plan_file(PlanSpec& spec, const std::string& text, const std::string& where);

// Pins that contradict each other whatever the model, for layouts without one: Error{usage} as settle_layout has it.
void check_bare_pins(const PlanSpec& spec);

// Nodes of the cluster that have so many devices: for "give --nodes"; whole copies of a cluster of several node types.
int64_t nodes_for(const ClusterSpec& cluster, int64_t devices);

// The layout of pins that are numbers, settled as `dtrain` settles it; what is not pinned takes dtrain's defaults, but
// micro-batch 1 where dtrain's does not divide the batch. dp fills the cluster. Error{usage}, also when the cluster has
// fewer devices than the layout needs.
Layout pinned_layout(const PlanInputs& inputs, const std::string& stage_layers);

// What the inputs mean, priced: the pinned layout with `from_file`, otherwise the best plan that the pins allow.
// Error{verdict} when nothing fits.
struct ChosenPlan {
  bool from_file = false;
  std::string stage_layers;
  bool keep_timeline = false;
};
Prediction chosen_plan(const PlanInputs& inputs, const ChosenPlan& how);

}  // namespace rw
