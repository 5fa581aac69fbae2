// A folder for what a benchmark writes, gone when the benchmark is, however it ends.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>

#include "libcore/base/after_death.h"

namespace rw {

// Makes a folder of its own name below `parent`; a signal, a crash or an mpirun that kills its ranks leaves nothing
// behind. Error{usage}: `parent` is no folder that can be written to.
class ScratchDir {
 public:
  explicit ScratchDir(const std::filesystem::path& parent);
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  std::optional<AfterDeath> sweeper_;
};

// Error{usage} when writing `bytes` below `dir` would leave less than a tenth of its file system free: says both and
// what to do.
void check_free_space(const std::filesystem::path& dir, int64_t bytes);
// The rule, without a disk: `free_bytes` are what an ordinary user may take.
bool leaves_a_tenth(int64_t bytes, int64_t free_bytes, int64_t total_bytes);

}  // namespace rw
