// What a run directory of `dtrain` says about time: its layout, and the medians of its steps' seconds by category.
#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/spec/layout.h"
#include "libcore/spec/model_spec.h"
#include "libcore/telemetry/categories.h"

namespace rw {

struct MeasuredRun {
  std::string where;
  ModelSpec model;
  Layout layout;
  std::string precision, backend;
  int64_t ranks = 0, ranks_per_node = 0, threads = 1;
  int64_t steps = 0;  // that the medians are of: the first third is left out, it warms up
  double step_s = 0;  // without checkpoints
  std::array<double, static_cast<size_t>(TimeCategory::n_categories)> seconds{};  // of rank 0
  std::vector<std::string> notes;  // for people: lines that were passed over
};

// Error{input} names the file, the line, the key, and what is missing or of another type. Lines that are no whole JSON
// are passed over.
MeasuredRun read_measured_run(const std::filesystem::path& run_dir);

}  // namespace rw
