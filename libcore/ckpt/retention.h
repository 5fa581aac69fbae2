// Which checkpoints of a run stay, and removing the others so that a crash at any moment leaves whole ones only.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/ckpt/run_listing.h"

namespace rw {

struct Retention {
  int64_t keep_last = 0;   // the newest so many; 0: all
  int64_t keep_every = 0;  // and those whose step is a multiple of it; 0: none
};
// Of steps in ascending order, those that go. The newest is never among them.
std::vector<int64_t> steps_to_remove(const std::vector<int64_t>& steps, const Retention& retention);

struct PruneOptions {
  Retention retention;
  enum class Action { remove, plan };
  Action action = Action::remove;  // plan: say what would go, touch nothing
  // Leftovers (step-N.tmp) may be a save under way; remove them only where no other process writes.
  enum class Leftovers { keep, remove };
  Leftovers leftovers = Leftovers::keep;
  // sizes: a checkpoint counts when its manifest verifies and every file has its size; a flipped bit goes unseen.
  enum class Check { sizes, every_byte };
  Check check = Check::sizes;
  VerifyWatch watch = {};  // told of the reading
};

struct RemovedDirectory {
  std::filesystem::path dir;
  int64_t step = -1;
  int64_t bytes = 0;  // of its files
};

struct PruneReport {
  std::vector<RemovedDirectory> removed, removed_leftovers;  // or to be removed, when planning
  std::vector<ListedStep> kept;                              // committed; and parts, which are not counted
  // Not counted, and kept: the retention counts what can be loaded, and a damaged directory is evidence.
  std::vector<ListedStep> damaged;
  std::vector<ListedStep> partial;  // leftovers that stay
  int64_t bytes = 0;                // freed
};

// Only steps that are committed with all files of the right size (or every byte right, when asked for) are counted and
// removed; those that were set aside as damaged are never touched. `Error{runtime}` when a
// directory cannot be removed; all others are then whole.
PruneReport prune_steps(const std::filesystem::path& checkpoints_dir, const PruneOptions& options);

}  // namespace rw
