// Trains and measures: several settings in turns, each in a run directory of its own that is read back, so that what is
// reported is what dtrain itself records.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/bench/record/run_records.h"
#include "libcore/bench/train/train_bench_spec.h"
#include "libcore/comm/comm.h"
#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"

namespace rw {

struct TrainCase {
  std::string name;  // "dp 2", "+ zero 1"
  TrainSpec spec;
  int ranks = 1;  // the first of the job's; the others sleep meanwhile
};

// What a case's repeats left, on rank 0.
struct TrainSeries {
  TrainCase what;
  ModelSpec model;
  Layout layout;
  std::vector<std::vector<StepRecord>> repeats;  // a repeat's steps, the warm-up left out
  double peak_flops_per_rank = 0;
  int64_t threads = 1, ranks_per_node = 1;
  std::string backend, device;  // "cuda", "cuda:0 (NVIDIA H200)"
  double cpu_share = 1;         // of the rank that got least
  bool is_quiet = true;         // nobody else was on the hosts
  bool is_first = false;  // the process had measured nothing before: what it took outside the arena is the run's own
};

struct TrainBenchJob {
  const TrainBenchSpec& spec;
  Comm& world;
  std::vector<TrainCase> cases;
  // On rank 0: what is being done, and how far all of it is.
  std::function<void(const std::string& what, double share)> progress = [](const std::string&, double) {};
  std::function<void(const std::string& line)> warning = [](const std::string&) {};
};
// Collective. Repeats are interleaved: every case once, then again. The series are complete on rank 0, empty elsewhere.
// Error as the trainer's.
std::vector<TrainSeries> measure_training(const TrainBenchJob& job);

}  // namespace rw
