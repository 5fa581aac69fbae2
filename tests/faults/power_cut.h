// Plays a record back and cuts the power after every operation: what recovery finds must be what was saved, and no
// older than what was reported as committed.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/faults/crash_model.h"
#include "tests/faults/recovery.h"

namespace faults {

// Steps in the order of their saves: a step that is saved again has several versions.
struct Saved {
  int64_t step = -1, version = 0;
  auto operator<=>(const Saved&) const = default;
};
using SavedTensors = std::map<Saved, TensorDigests>;

struct Recording {
  std::string root;  // the recorded directory
  Tree before;       // what it held
  std::vector<Operation> operations;
  RunPlace place = {};  // below it
  SavedTensors saved;   // what every save must hold
  Saved committed;      // before the first operation
};

struct CutReport {
  int64_t n_states = 0, n_recovered = 0, n_wrong = 0;
  int64_t n_fresh = 0;             // nothing was committed, nothing found
  int64_t n_commits = 0;           // reported in the record
  std::vector<std::string> wrong;  // the first few
};

struct CutPlan {
  std::filesystem::path scratch;
  uint64_t seed = 1;
  // Directories, one of which is lost altogether in every state: that of a node which does not come back.
  std::vector<std::string> one_lost = {};
  // Called for every state that is recovered from; returns what is wrong with it, or "".
  std::function<std::string(int64_t state, const std::filesystem::path& root)> visit = nullptr;
  int random_cuts = 12;  // a prefix, besides the ones with all or nothing
};
CutReport cut_everywhere(const Recording& recording, const CutPlan& plan);

}  // namespace faults
