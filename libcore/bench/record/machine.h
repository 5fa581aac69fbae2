// Which machine a number is from, and whether the machine had time for it.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "libcore/base/json.h"

namespace rw {

// Of the CPU time of a machine, what others may take while it still counts as quiet.
constexpr double kQuietOthersShare = 0.1;

struct MachineIdentity {
  std::string host, cpu_model, os, kernel, compiler, mpi;
  int64_t cpus = 0;         // online, of the container's set, and at most the cgroup's quota rounded up
  int64_t usable_cpus = 0;  // of them, those that this process may use: a rank that mpirun binds has fewer
  int64_t memory_bytes = 0;
  std::string backend;  // "cpu/avx512_bf16": what the kernels chose
  std::string
      fingerprint;  // 16 hex digits of what changes speed: cpu_model, cpus, memory_bytes in GiB, backend; not the host
};
// Of this host, from /proc and /sys below `root` (tests give their own). What cannot be read is "" or 0.
MachineIdentity machine_identity(const std::filesystem::path& root = "/");
Json machine_json(const MachineIdentity& machine);
std::string machine_fingerprint(const MachineIdentity& machine);
// For what was measured on a GPU: "cuda:0 (NVIDIA H200)" is kept as the backend "cuda (NVIDIA H200)", and tells this
// machine's fingerprint from its CPUs'. A CPU's backend changes nothing.
void set_device(Json& machine, const std::string& device);

// CPU seconds over wall seconds of what was measured, and what others used meanwhile.
class QuietMeter {
 public:
  // `threads`: how many of this process's threads compute all the time while it is running; 0: none has to (a client
  // that waits): only the others' use is judged.
  explicit QuietMeter(int64_t threads, std::filesystem::path root = "/");
  void start();
  void stop();  // may start again: adds up
  // CPU seconds of this process meanwhile: what the ranks of a host tell each other for count_as_ours.
  double cpu_s() const { return cpu_s_; }
  // CPU seconds, measured over the same time, of other processes that belong to what is measured (the other ranks on
  // this host, a server under test): no disturbance.
  void count_as_ours(double cpu_s) { friends_s_ += cpu_s; }
  // Of the time measured: process CPU seconds per thread and wall second. NaN of no time, or of no threads.
  double cpu_share() const;
  // CPU time that other processes (and other guests of the physical machine: steal) took, as a share of what all CPUs
  // of the machine have; from /proc/stat. NaN where that cannot be read, or after less than 0.2 s: it counts in ticks
  // of 10 ms.
  double others_share() const;
  bool is_quiet() const;  // cpu_share >= 0.95 (where threads > 0) and others_share <= kQuietOthersShare (where known)

 private:
  int64_t threads_;
  std::filesystem::path root_;
  double wall_s_ = 0, cpu_s_ = 0, friends_s_ = 0, busy_s_ = 0, machine_s_ = 0;
  double start_wall_ = 0, start_cpu_ = 0, start_busy_ = 0, start_total_ = 0;
  bool knows_machine_ = true;
};

}  // namespace rw
