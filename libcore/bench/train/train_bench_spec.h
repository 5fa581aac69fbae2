// Everything that `dbench train` can be told: dtrain's own settings, so that its configurations are measured as they
// are, and what of them is measured.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/spec/train_spec.h"

namespace rw {

struct TrainBenchSpec {
  TrainSpec train;
  int64_t warmup = 3, measure = 10, repeats = 3;
  bool ladder = false, predict = true;
  std::string sweep_ranks, scaling = "strong", keep;
};
// All of TrainSpec's but those of a dry run. What says how long a run goes on, where it is kept and what is looked at
// beside the steps is accepted and not used: steps, out, resume, val-data, val-fraction, eval-every, verify-*.
FieldList fields(TrainBenchSpec& spec);
// What no single field can say alone; Error{usage} names the flags.
void check_train_bench(const TrainBenchSpec& spec);
// --sweep-ranks "1,2,4": ascending, at most `ranks`. Error{usage}.
std::vector<int> sweep_ranks(const TrainBenchSpec& spec, int ranks);

}  // namespace rw
