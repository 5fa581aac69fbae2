// How a host's GPUs and network cards hang together, in the words of `nvidia-smi topo -m`.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

struct GpuNeighbours {
  std::vector<std::string> gpus, nics;  // the way to each: "X" (itself), "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"
  std::vector<int64_t> cores;           // that are near; none: not told
  int64_t numa_node = -1;               // -1: not told
  bool operator==(const GpuNeighbours&) const = default;
};
struct GpuTopology {
  std::vector<GpuNeighbours> gpus;
  std::vector<std::string> nics;                // "mlx5_0"; "NIC0" where the legend has no name
  std::vector<std::vector<int64_t>> nic_cores;  // that are near each of them; none: not told
  bool knows_nvlink = true;                     // not: the ways are those over PCIe, whether there are NVLinks or not
  bool operator==(const GpuTopology&) const = default;
};
// Without GPUs where the text holds no such matrix (an error, no GPU).
GpuTopology parse_gpu_topology(std::string_view text);
// Asks this host's nvidia-smi; without GPUs where there is none.
GpuTopology this_host_gpus();

// NVLinks of a way: 18 of "NV18", 0 of the others.
int64_t nvlinks(std::string_view way);
// "0-3,8" -> 0 1 2 3 8; what is no such list gives none.
std::vector<int64_t> parse_core_list(std::string_view list);
// The groups of GPUs that reach each other by NVLink, directly or by way of others; each rising, by their first.
std::vector<std::vector<int64_t>> nvlink_groups(const GpuTopology& topology);
// The NICs nearest to a GPU: those of the shortest of its ways ("PIX" before "PXB" and so on). None where all are
// across the socket link ("SYS").
struct NearNics {
  std::string way;
  std::vector<std::string> nics;
  bool operator==(const NearNics&) const = default;
};
NearNics nearest_nics(const GpuTopology& topology, int64_t gpu);
// In a few words: "2 GPUs, NV18 between all; nearest NICs GPU 0 mlx5_0 (PIX), GPU 1 none near", and where so "(NVLink
// not told)". "" without GPUs.
std::string gpu_topology_text(const GpuTopology& topology);

}  // namespace rw
