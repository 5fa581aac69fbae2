// Which machine a number is from, and whether the machine had time for it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "libcore/base/json.h"

namespace rw {

struct MachineIdentity {
  std::string host, cpu_model, os, kernel, compiler, mpi;
  int64_t cpus = 0;  // that this process may use (affinity, and the cgroup's quota rounded up)
  int64_t memory_bytes = 0;
  std::string backend;  // "cpu/avx512_bf16": what the kernels chose
  std::string
      fingerprint;  // 16 hex digits of what changes speed: cpu_model, cpus, memory_bytes in GiB, backend; not the host
};
// Of this host, from /proc and /sys below `root` (tests give their own).
MachineIdentity machine_identity(const std::filesystem::path& root = "/");
Json machine_json(const MachineIdentity& machine);

// CPU seconds over wall seconds of what was measured, and what others used meanwhile.
class QuietMeter {
 public:
  // `threads`: how many of this process's threads compute all the time while it is running; 0: none has to (a client
  // that waits): only the others' use is judged.
  explicit QuietMeter(int64_t threads);
  void start();
  void stop();  // may start again: adds up
  // Of the time measured: process CPU seconds per thread and wall second.
  double cpu_share() const;
  // CPU that other processes took, as a share of what this process's `cpus` left idle or more; of /proc/stat.
  double others_share() const;
  bool is_quiet() const;  // cpu_share >= 0.95 (where threads > 0) and others_share <= 0.1

 private:
  int64_t threads_;
  double wall_s_ = 0, cpu_s_ = 0, others_s_ = 0, machine_s_ = 0;
  double start_wall_ = 0, start_cpu_ = 0, start_busy_ = 0, start_total_ = 0;
};

}  // namespace rw
