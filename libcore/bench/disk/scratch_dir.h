// A folder for what a benchmark writes, gone when the benchmark is, however it ends.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>

namespace rw {

// Makes a folder of its own name below `parent`. A small process of the system's shell waits for this one's end and
// removes the folder then, so that a signal, a crash or an mpirun that kills its ranks leaves nothing behind; it is in
// a session of its own, which a Ctrl-C does not reach. Error{usage}: `parent` is no folder that can be written to.
class ScratchDir {
 public:
  explicit ScratchDir(const std::filesystem::path& parent);
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  ~ScratchDir();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int pipe_ = -1;  // its end is the signal
  pid_t sweeper_ = -1;
};

// Error{usage} when writing `bytes` below `dir` would leave less than a tenth of its file system free: says both and
// what to do.
void check_free_space(const std::filesystem::path& dir, int64_t bytes);
// The rule, without a disk: `free_bytes` are what an ordinary user may take.
bool leaves_a_tenth(int64_t bytes, int64_t free_bytes, int64_t total_bytes);

}  // namespace rw
