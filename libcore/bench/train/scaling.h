// A sweep over numbers of ranks: speed-up, efficiency, and the law through the points.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/train/measure_training.h"

namespace rw {

// A case for each number of ranks. strong: the global batch of the most ranks for all; weak: as many samples a rank as
// that gives. Error{usage} names the number of ranks that does not fit.
std::vector<TrainCase> scaling_cases(const TrainBenchSpec& spec, const ModelSpec& model, const std::vector<int>& ranks);

struct ScalingAnswer {
  std::string table;
  std::vector<BenchRecord> record;  // of the law: none with fewer than three points
};
// records[i] is of ranks[i]. The law is of the seconds a token takes.
ScalingAnswer scaling_answer(const TrainBenchSpec& spec, const std::vector<int>& ranks,
                             const std::vector<BenchRecord>& records);

}  // namespace rw
