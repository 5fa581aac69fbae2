// What a resume finds in a run directory, and what the tensors are that it would go on with.
#pragma once
#include <filesystem>
#include <string>

#include "tests/faults/saved_tensors.h"

namespace faults {

// How a run was started, as far as its checkpoints depend on it; paths are relative.
struct RunPlace {
  std::string out = "run";
  int ranks = 1, ranks_per_node = 0;
  std::string local;  // as of --local-checkpoint-dir; empty: none
};

struct Recovery {
  int64_t step = -1;      // -1: the run would begin anew
  TensorDigests tensors;  // of that step
  std::string notes;      // what was passed over
  std::string error;      // instead of all that: resuming fails
};
// Decides as dtrain does with --resume auto, with as many ranks. May write into the nodes' own folders.
Recovery recover(const std::filesystem::path& root, const RunPlace& place);

}  // namespace faults
