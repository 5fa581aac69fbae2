// Is what lies there what was saved?
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"

namespace rw {

// A committed checkpoint's manifest. Error{input} when the directory, the manifest, or its digest is not as it should
// be.
Manifest read_manifest(const std::filesystem::path& dir);
// Every file of the manifest is in `dir` with its size, or Error{input} says which is not. Nothing is read.
void check_files(const Manifest& manifest, const std::filesystem::path& dir);
// A directory with the name of a step (step-N, step-N.damaged) holds that step, or Error{input}.
void check_name(const Manifest& manifest, const std::filesystem::path& dir);
// A step in a node's own directory (it bears the run's id), where the files of other nodes' ranks are not expected.
// Returns the number of files that are not here; 0 anywhere else.
int64_t files_elsewhere(const Manifest& manifest, const std::filesystem::path& dir);

struct VerifiedCheckpoint {
  std::filesystem::path dir;
  int64_t step = -1;                // -1 when the manifest cannot be read
  int64_t bytes = 0;                // of the files that were read
  int64_t tensor_bytes = 0;         // of its tensors, all nodes' together
  int64_t n_files_elsewhere = 0;    // above 0: a node's part of a checkpoint; these files were not looked at
  std::vector<std::string> faults;  // a line each, empty when intact
};

// What is told of the work on the way; either may be null.
struct VerifyWatch {
  std::function<void(const std::filesystem::path& dir)> begin;  // before each checkpoint
  std::function<void(int64_t bytes)> progress;                  // read since the last call; from several threads
};

// Reads every byte of a checkpoint. Damage of any kind is a fault in the report, not an error.
VerifiedCheckpoint verify_checkpoint(const std::filesystem::path& dir, const VerifyWatch& watch = {});

// Every step of a checkpoints directory, in ascending order. Saves that did not finish are no damage and are named in
// `unfinished`. Those that were set aside as damaged are not judged again.
std::vector<VerifiedCheckpoint> verify_checkpoints(const std::filesystem::path& checkpoints_dir,
                                                   const VerifyWatch& watch,
                                                   std::vector<std::filesystem::path>* unfinished);

}  // namespace rw
