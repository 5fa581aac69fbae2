// A checkpoint copied so that the copy is the checkpoint or is not there: every byte is compared with its digest on the
// way from the source to the disk, and the copy is committed like a save.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>

namespace rw {

// Where a copy of `source`, a step's directory, goes when a person says `dest`:
//   a run                           dest/checkpoints/step-N
//   a step's name, or a checkpoint  dest itself
//   any other directory, or none    dest/step-N
// Error{usage} when dest names another step or is a file.
std::filesystem::path copy_target(const std::filesystem::path& source, const std::filesystem::path& dest);

struct CopyOptions {
  std::filesystem::path source, target;  // directories of the same step
  // What may be replaced: a committed checkpoint of the target's name, and what an interrupted save or copy left there.
  enum class Existing { refuse, replace_leftover, replace };
  Existing existing = Existing::refuse;
  std::function<void(int64_t done, int64_t total)> progress;  // bytes; may be null
};

struct CopyReport {
  int64_t step = -1, bytes = 0, n_files = 0;  // bytes with the manifest's; number without it
};

// Written as step-N.tmp, each file and the directory fsynced, then renamed. Error{verdict} lists the damage of the
// source; Error{usage} when the target exists; Error{runtime} when it cannot be written: the target is then as it was
// before. Memory: a few MiB.
CopyReport copy_checkpoint(const CopyOptions& options);

}  // namespace rw
