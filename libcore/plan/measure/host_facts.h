// What a Linux host says about itself: cores, memory, GPUs.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/plan/measure/gpu_topology.h"
#include "libcore/plan/measure/pci_topology.h"

namespace rw {

struct GpuFacts {
  std::string name;    // "NVIDIA H100 80GB HBM3"
  int64_t memory = 0;  // bytes
  std::string bus_id;  // "0000:1b:00.0"; "" where it is not told
  bool operator==(const GpuFacts&) const = default;
};
// The lines of `nvidia-smi --query-gpu=name,memory.total,pci.bus_id --format=csv,noheader,nounits` ("NVIDIA L40S,
// 46068, 00000000:1B:00.0", MiB), also without the address. Lines that say something else (an error, "[N/A]") are
// passed over.
std::vector<GpuFacts> parse_gpus(std::string_view csv);

struct HostFacts {
  std::string name = "this-machine", cpu_model;
  int64_t cores = 1;       // that do not share an execution unit with another; no SMT siblings
  int64_t numa_nodes = 1;  // with cores
  int64_t memory = 0;      // bytes that this host or its container may use
  int64_t memory_taken = 0;
  std::vector<GpuFacts> gpus;
  std::string gpus_from = "nvidia-smi";  // who told of them
  std::vector<BusGpu> bus_gpus;          // that the PCI bus has, whether they answer or not
  std::string bus_file;                  // HWLOC_XMLFILE, when that tells of the bus
  bool smi_is_late = false;              // nvidia-smi did not answer
  int smi_code = 0;                      // it ended with
  std::string why_no_cuda;               // where it was asked and told of none
  GpuTopology topology;                  // of `gpus`, or where there are none of `bus_gpus`
};
// From ROOT/proc and ROOT/sys (without GPUs); files that are missing leave the defaults, but Error{runtime} without a
// memory size.
HostFacts read_host_facts(const std::filesystem::path& root);
// What a command of the shell prints, in ASCII, its first MiB at most; "" when it cannot be started.
struct CommandOutput {
  std::string text;
  int code = 0;          // it ended with
  bool is_late = false;  // it had not ended after `limit_s` seconds, and was ended
};
constexpr int kCommandLimitS = 20;
CommandOutput output_of(const char* command, int limit_s = kCommandLimitS);
// This host, without GPUs: its facts with no more cores than this process may run on, and its name.
HostFacts this_host();
// Asks nvidia-smi, the PCI bus, and where that has GPUs of which nvidia-smi does not tell, CUDA (in builds that have
// it).
void find_gpus(HostFacts& facts);

}  // namespace rw
