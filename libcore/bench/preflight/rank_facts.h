// What the ranks of a job know about themselves and their hosts before they start: gathered as JSON to every rank, then
// judged by pure functions (checks.h). A number that could not be had is NaN, or -1 where it is whole; a text "".
#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/comm/pair_matrix.h"
#include "libcore/plan/measure/gpu_topology.h"
#include "libcore/plan/measure/pci_topology.h"

namespace rw {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

struct InterfaceFacts {
  std::string name;
  int64_t mtu = -1;
  bool is_up = false;
};

struct GpuState {
  std::string name;
  int64_t memory = 0;             // bytes
  double clock_mhz = kUnknown;    // the most that streaming multiprocessors may run at
  double ecc_errors = kUnknown;   // uncorrected, since the driver was loaded
  double temperature = kUnknown;  // Celsius
  std::string bus_id;             // "0000:1b:00.0"
  bool operator==(const GpuState&) const = default;
};

struct RankFacts {
  int64_t rank = 0;
  std::string host;
  // Software.
  std::string binary;                              // digest of the program that runs
  std::map<std::string, std::string> versions;     // "MPI", "HDF5", "compiler", ...
  std::map<std::string, std::string> environment;  // that changes how a job runs, without what differs by design
  // The network.
  double clock_offset_s = kUnknown, round_trip_s = kUnknown;  // this clock minus rank 0's; of the quickest ping
  std::map<std::string, std::string> addresses;  // host name of the job -> numeric address here; "" when none was found
  std::vector<InterfaceFacts> interfaces;
  std::string default_interface;                 // of the default route
  std::map<std::string, std::string> tcp;        // "congestion_control", "rmem_max", ...
  std::map<std::string, int64_t> link_counters;  // "eth0 rx_errors", "mlx5_0/1 link_downed"; since the host started
  // Limits; -1: none.
  int64_t memlock_bytes = -1, open_files = -1, processes = -1;
  // Memory and disk.
  int64_t memory_available = -1, shm_free = -1, disk_free = -1;
  std::string disk_dir, disk_error;  // where the disk was tried; why it could not be written
  double disk_mb_per_s = kUnknown;   // 16 MiB written and fsynced
  // Cores.
  std::vector<int64_t> cores;     // that this rank may run on
  double quota_cores = kUnknown;  // of the cgroup; NaN: none
  int64_t host_cores = -1, threads = 1;
  std::string governor, huge_pages;
  double load = kUnknown;    // average of a minute, before the checks began
  double steal = kUnknown;   // share of CPU time that the hypervisor gave to others, while they ran
  bool has_rdma = false;     // InfiniBand or RoCE devices
  bool smi_is_late = false;  // nvidia-smi did not answer
  std::vector<GpuState> gpus;
  std::vector<BusGpu> bus_gpus;        // that the PCI bus has, whether they answer or not
  std::string bus_file;                // HWLOC_XMLFILE, when that tells of the bus
  GpuTopology topology;                // of `gpus`, or where none answers of `bus_gpus`; none: not told
  double gemm_gflop_per_s = kUnknown;  // of one thread, all ranks at once
};
Json rank_facts_json(const RankFacts& facts);
RankFacts parse_rank_facts(const Json& json, const std::string& where);  // Error{input}

struct JobFacts {
  std::vector<RankFacts> ranks;  // by rank
  std::vector<PairSpeed> pairs;
  bool pairs_at_once = false;
};

}  // namespace rw
