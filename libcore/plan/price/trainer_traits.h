// How a trainer does what a layout says, where trainers differ: facts about published ones, so that their runs can be
// predicted as well as ours, and two fitted numbers each. configs/trainers/published.toml holds them with their
// sources.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/plan/price/op_price.h"

namespace rw {

// Defaults: what dtrain does, whose own traffic (dp_traffic) stands for the members about data parallelism.
struct TrainerTraits {
  std::string name = "dtrain";
  bool is_dtrain() const { return name == "dtrain"; }

  // Compute.
  std::string attention = "fused";      // or "unfused": scores go through memory
  double attention_rate = 1;            // of the device's attention-fraction
  std::string selective = "attention";  // what selective recompute makes again; "half": every other product, all else
  bool whole_layers = false;            // full recompute repeats a layer to its end, collectives too
  double accumulation_bytes = 0;        // of a parameter, moved to add its gradient to the sum by an op of its own
  // Pipeline: a stage waits for its messages, instead of computing meanwhile.
  bool blocking_messages = false;
  // Tensor parallelism: share of the collectives that products hide.
  double tp_hidden = 0;
  // Data parallelism.
  int64_t gradient_bytes = 4, parameter_bytes = 4;  // of an element on the wire
  bool overlaps_gradients = true;                   // beside the last backward (ZeRO-0, 1)
  bool reduces_all = false;                         // ZeRO-1 all-reduces its gradients
  bool broadcasts = false;           // ZeRO-1: every rank broadcasts its share of the parameters, after the update
  std::string messages = "buckets";  // of a layer under ZeRO 2 and 3; or "tensors": one for each parameter
  double bucket_bytes = 250e6;

  // Two numbers fitted to a trainer's published runs.
  double compute_factor = 1;        // of its compute time, against the device's calibration
  double communication_factor = 1;  // of its communication's time

  AttentionKernel kernel() const { return {.fused = attention == "fused", .rate = attention_rate}; }
  bool operator==(const TrainerTraits&) const = default;
};

FieldList fields(TrainerTraits& traits);  // TOML keys: the members' names with dashes

// [trainer.NAME] tables. Error{usage} names file, line and key.
std::vector<TrainerTraits> parse_trainers(const std::string& toml, const std::string& where);
std::vector<TrainerTraits> published_trainers();  // configs/trainers/published.toml
// Error{usage} when there is none of that name.
const TrainerTraits& trainer_named(const std::vector<TrainerTraits>& all, const std::string& name);

}  // namespace rw
