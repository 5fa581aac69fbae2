// One strategy at a time: what each adds to plain data parallelism in speed and takes in memory, and the other way
// round.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/train/measure_training.h"

namespace rw {

struct Rung {
  std::string name;  // "dp 4", "+ zero 1", "+ tp 2"; without "+": on the base alone, as the rung before leaves no ranks
  TrainSpec spec;    // with the base's global batch, so that all do the same work
  std::string skipped;  // why it cannot be; "" when it can
};
// The first is the base. Pure; what fits is what settle_layout takes. Error{usage} when not even the base does.
std::vector<Rung> ladder_rungs(const TrainSpec& base, const ModelSpec& model, int ranks);

// Adds to each record's details {"ladder": {"rung", "tokens_per_s_over_base", "tokens_per_s_over_before",
// "memory_over_base", "memory_over_before"}} and gives the table. records[i] is of the i-th rung that was not skipped.
std::string compare_rungs(const std::vector<Rung>& rungs, std::vector<BenchRecord>& records);

}  // namespace rw
