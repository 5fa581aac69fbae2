// Is what lies there what was saved?
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace rw {

struct VerifiedCheckpoint {
  std::filesystem::path dir;
  int64_t step = -1;                // -1 when the manifest cannot be read
  int64_t bytes = 0;                // of its tensors
  std::vector<std::string> faults;  // a line each, empty when intact
};

// Reads every byte of a checkpoint. Damage of any kind is a fault in the report, not an error.
VerifiedCheckpoint verify_checkpoint(const std::filesystem::path& dir);

// Every step of a run's checkpoints directory, in ascending order; `begin` is called before each. Saves that did not
// finish are no damage and are named in `unfinished`.
std::vector<VerifiedCheckpoint> verify_checkpoints(const std::filesystem::path& checkpoints_dir,
                                                   const std::function<void(const std::filesystem::path&)>& begin,
                                                   std::vector<std::filesystem::path>* unfinished);

}  // namespace rw
