// A placement as the files that launchers and libraries read.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/plan/place/placement.h"

namespace rw {

// What the cluster's description does not hold.
struct PlaceNames {
  std::string job = "rankwright", image = "rankwright:latest";
  std::string interface;                              // "" or a network interface ("eth0")
  std::vector<std::string> nics;                      // RDMA devices ("mlx5_0"), one per NIC, in the devices' order
  std::vector<std::string> gpu_bus_ids, nic_bus_ids;  // PCI addresses ("0000:1b:00.0")
  std::string leaf_label = "network.topology.nvidia.com/leaf";  // of Kubernetes nodes, as NVIDIA Topograph sets it
  int64_t cores = 0;                                            // of a node; 0: a rank gets its whole socket
  int64_t sockets = 1;                                          // of a node
};

struct PlaceFile {
  const RankPlacement& placement;
  const Layout& layout;
  const ClusterSpec& cluster;
  const std::vector<NodeUse>& nodes;  // (nodes); empty: nameless
  StepBytes bytes;
  const PlaceNames& names;
};

inline constexpr const char* kPlaceFormats[] = {"rankfile", "hostfile", "slurm", "k8s", "nccl-topo", "env"};
// Error{usage}: the format needs host names that are not there, or cannot say this placement (with the one that can).
std::string place_file(const PlaceFile& file, const std::string& format);

// Open MPI 4.1: "rank N=host slot=SOCKET:CORES", ranks ascending (its parser refuses others).
std::string rankfile_text(const PlaceFile& file);
// "host slots=N", the nodes in use in their order; for placements whose ranks follow the nodes.
std::string hostfile_text(const PlaceFile& file);
// Lines for sbatch and srun: block distribution where ranks follow the nodes, else an arbitrary one by host list.
std::string slurm_text(const PlaceFile& file);
// A headless Service, a ConfigMap with the rankfile, an indexed Job with a pod a node: kept on one leaf if it fits.
std::string k8s_text(const PlaceFile& file);
// NCCL_TOPO_FILE of one node: CPUs, PCIe switches, GPUs with their NVLinks, NICs.
std::string nccl_topo_text(const PlaceFile& file);
// Shell exports for NCCL and Open MPI that follow from the cluster, the placement and the names given.
std::string env_text(const PlaceFile& file);

// A node in use: its ranks in the order of its devices.
struct UsedNode {
  int64_t node = 0;
  std::string host;  // "" when nameless
  std::vector<int64_t> ranks;
};
std::vector<UsedNode> used_nodes(const PlaceFile& file);  // in the cluster's order
std::string rank_list(const UsedNode& node);              // "0 1 2"
// "0:0-7": where on its node a rank runs, sockets and cores dealt to devices in order.
std::string slot_text(const PlaceFile& file, int64_t rank);
const NodeType& node_type(const PlaceFile& file, int64_t node);

}  // namespace rw
