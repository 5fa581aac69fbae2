// A step of the real trainer on the meta device: the same code in one process, nothing computed, nothing sent. What it
// takes of memory, what it computes and what it communicates is known before it runs.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/op_log.h"
#include "libcore/base/json.h"
#include "libcore/comm/watch.h"
#include "libcore/device/arena.h"
#include "libcore/train/step.h"

namespace rw {

struct DryRun {
  int64_t rank = 0;
  std::array<int64_t, static_cast<size_t>(MemoryOwner::n_owners)>
      bytes{};                                                 // by owner, all there until the end of the run
  int64_t total_bytes = 0;                                     // the arena's high-water mark
  int64_t checkpoint_bytes = 0;                                // of a checkpoint, what this rank writes
  std::map<std::string, OpCount, std::less<>> ops;             // of one step
  std::map<std::pair<std::string, CommKind>, CommCount> comm;  // of one step, by (group, kind)
};

// The step in order: its ops, and its collectives and messages with what was being computed when they started.
struct DryTrace {
  struct CommCall {
    CommKind kind;
    std::string group, scope;
    int64_t bytes;
    size_t at;  // ops called before
  };
  std::vector<OpCall> ops;
  std::vector<CommCall> comm;
};

// backend: whose sizes (workspace, packed weights) are planned with; its stream's threads count, its log does not.
struct DryRunSettings {
  StepSettings step;
  Exec backend;
  int64_t ranks_per_node = 1;
  DryTrace* trace = nullptr;  // when set, filled
};
DryRun dry_run(const DryRunSettings& settings, int64_t rank);

Json dry_run_json(const DryRun& run);
// The ranks that `text` names: R, or all-stages (the first rank of each stage). Error{usage} names the flag.
std::vector<int64_t> ranks_asked(const std::string& flag, const std::string& text, const Layout& layout);

// What `dtrain --dry-run` prints, for --dry-run-rank R or all-stages (the first rank of each stage): layout and runs.
struct TrainSpec;
std::string dry_run_report(const TrainSpec& spec);

}  // namespace rw
