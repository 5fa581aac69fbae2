// What a model is to be planned for: devices, the nodes that hold them, the network between nodes, storage, price and
// failures. Read from configs/clusters/*.toml; every number there stands beside its source.
//
// Units: bytes, bytes/s (one direction), FLOP/s (dense), seconds, currency per device and hour. TOML keys are the
// members' names with dashes.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/base/fields.h"

namespace rw {

constexpr int64_t kMostNodes = 1 << 20;

// Where a number comes from, best first. measured: on these devices, by `dbench` or `dplan calibrate`; table: published
// for this device; roofline: derived from the data sheet alone; guess: neither.
enum class Provenance : uint8_t { measured, table, roofline, guess };
const char* provenance_name(Provenance p);
// Relative error to expect of a time that rests on such numbers.
double provenance_error(Provenance p);

// [device.NAME]
struct DeviceType {
  std::string name;
  // From the data sheet. A peak of 0: the type cannot do it.
  int64_t memory = 0;
  double peak_f32 = 0, peak_bf16 = 0, peak_f16 = 0;  // dense matrix products, FLOP/s
  double memory_bandwidth = 0;
  int64_t compute_units = 1;           // SMs of a GPU; 1: products are not cut into tiles over units
  int64_t tile_m = 256, tile_n = 128;  // of a product, the largest piece that a unit does at a time
  int64_t reserve = 0;                 // bytes that the runtime keeps from us (context, communication buffers)
  double price = 0;                    // of a device and hour; 0: unknown
  double mtbf_hours = 0;               // of one device; 0: unknown
  // Calibration: at most eight numbers a type, fitted to measured runs.
  double gemm_fraction = 0.8;        // of the peak, that a large product reaches
  double gemm_half_size = 0;         // elements: a product whose smallest side is this reaches half of it; 0: no matter
  double attention_fraction = 0.5;   // of the peak, that fused attention reaches: heads of 128, long sequences
  double misaligned_fraction = 0.1;  // of gemm_fraction, for batched products of heads not a multiple of 8 elements
  double memory_fraction = 0.8;      // of the bandwidth, that element-wise ops reach
  double launch = 0;                 // seconds an op takes beyond its work
  double link_fraction = 0.8;        // of every link's bandwidth, that large collectives reach
  double overlap = 0.7;              // of communication that can run beside compute, what is hidden
  std::string provenance = "roofline";  // of the calibration

  bool operator==(const DeviceType&) const = default;

  bool is_cpu() const { return compute_units == 1; }
};

// One line of a fit: a collective of n bytes over the link's ranks takes alpha + n / bandwidth, from from_bytes on.
struct LinkSegment {
  int64_t from_bytes = 0;
  double alpha = 0;      // seconds
  double bandwidth = 0;  // of the collective's data (not the bus bandwidth), bytes/s

  bool operator==(const LinkSegment&) const = default;
};
// A published or measured collective over all devices of a node (within a node), or one device of each node.
struct CollectiveFit {
  std::string kind;  // "all_reduce", "all_gather", "reduce_scatter", "send"
  int64_t ranks = 0;
  std::vector<LinkSegment> segments;  // ascending from_bytes, the first from 0; one to three
  std::string provenance = "table";

  bool operator==(const CollectiveFit&) const = default;
};

// [[node]]
struct NodeType {
  std::string name, device;
  int64_t count = 1, devices = 8;
  std::string link = "nvlink";  // nvlink, nvswitch, pcie, shared-memory: for people
  double link_bandwidth = 0;    // of one device to its node's others, one direction
  double link_latency = 2e-6;
  int64_t link_domain = 0;    // devices that share the fast link (0: all of the node); beyond, pcie
  double pcie_bandwidth = 0;  // of one device
  int64_t nics = 1;
  double nic_bandwidth = 0;  // of one NIC, one direction
  double nic_latency = 5e-6;
  int64_t host_memory = 0;
  double host_bandwidth = 0;               // device to host memory, of one device
  double storage_bandwidth = 0;            // of one node to shared storage, writing
  std::vector<CollectiveFit> collectives;  // [[node.collective]]

  bool operator==(const NodeType&) const = default;
};

// [network]
struct NetworkSpec {
  int64_t nodes_per_leaf = 0;   // 0: one flat switch
  double oversubscription = 1;  // of a leaf's uplinks: 2 means half the bandwidth above
  double hop_latency = 1e-6;    // of each switch level above the leaf
  bool rails = false;           // NIC i of every node hangs on rail i: equal local ranks meet without leaving it
  std::vector<CollectiveFit> collectives;  // [[network.collective]]: one device of each of `ranks` nodes

  bool operator==(const NetworkSpec&) const = default;
};

struct ClusterSpec {
  std::string name, where;  // where: the file, for messages
  std::vector<DeviceType> devices;
  std::vector<NodeType> nodes;
  NetworkSpec network;
  double storage_bandwidth = 0;  // of the whole cluster, writing; 0: the nodes' sum
  double mtbf_hours = 0;         // of the whole cluster; 0: from its devices

  int64_t node_count() const;
  int64_t device_count() const;
  const DeviceType& device_of(const NodeType& node) const;
  bool operator==(const ClusterSpec&) const = default;
};

FieldList fields(ClusterSpec& cluster);  // the keys above the tables
FieldList fields(DeviceType& device);
FieldList fields(NodeType& node);
FieldList fields(NetworkSpec& network);
FieldList fields(CollectiveFit& fit);  // without segments = [[from_bytes, alpha, bandwidth], ...]

// Error{usage} names the file, line, key; unknown keys with the nearest known one; zero bandwidths and devices that do
// not exist with what to write.
ClusterSpec parse_cluster_spec(const std::string& toml, const std::string& where);
// A .toml file or the name of one in configs/clusters ("h100-sxm"), found as models are.
ClusterSpec load_cluster_spec(const std::filesystem::path& path_or_name);
std::vector<std::string> cluster_names();              // of those in configs/clusters
std::string cluster_toml(const ClusterSpec& cluster);  // what parse_cluster_spec reads back to the same
// The same cluster with so many nodes: the count of its only node type, or of several in proportion. Error{usage}.
void set_node_count(ClusterSpec& cluster, int64_t nodes);

}  // namespace rw
