// `dbench train`: one layout, a ladder of strategies, or a sweep over numbers of ranks, measured beside its prediction.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/train/train_bench_spec.h"
#include "libcore/comm/comm.h"

namespace rw {

struct TrainBenchHooks {
  std::function<void(const std::string& what, double share)> progress = [](const std::string&, double) {};
  std::function<void(const std::string& line)> warning = [](const std::string&) {};
};
struct TrainBenchAnswer {
  std::vector<BenchRecord> records;
  std::string table;
};
// Collective; the answer is on rank 0, empty elsewhere. Error{usage}, Error{input} for what is asked and cannot be.
TrainBenchAnswer run_train_bench(const TrainBenchSpec& spec, Comm& world, const TrainBenchHooks& hooks);

}  // namespace rw
