// What a Linux host says about itself: cores, memory, GPUs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/plan/measure/gpu_topology.h"

namespace rw {

struct GpuFacts {
  std::string name;    // "NVIDIA H100 80GB HBM3"
  int64_t memory = 0;  // bytes
  bool operator==(const GpuFacts&) const = default;
};
// The lines of `nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits` ("NVIDIA L40S, 46068", MiB).
// Lines that say something else (an error, "[N/A]") are passed over.
std::vector<GpuFacts> parse_gpus(std::string_view csv);

struct HostFacts {
  std::string name = "this-machine", cpu_model;
  int64_t cores = 1;       // that do not share an execution unit with another; no SMT siblings
  int64_t numa_nodes = 1;  // with cores
  int64_t memory = 0;      // bytes that this host or its container may use
  int64_t memory_taken = 0;
  std::vector<GpuFacts> gpus;
  GpuTopology topology;  // without GPUs where nvidia-smi does not tell it
};
// From ROOT/proc and ROOT/sys (without GPUs); files that are missing leave the defaults, but Error{runtime} without a
// memory size.
HostFacts read_host_facts(const std::filesystem::path& root);
// What a command of the shell prints; "" when it cannot be started.
std::string output_of(const char* command);
// This host: its facts with no more cores than this process may run on, its name and its GPUs (asks nvidia-smi, where
// there is one).
HostFacts this_host();

}  // namespace rw
