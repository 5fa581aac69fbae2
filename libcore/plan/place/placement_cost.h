// What a placement costs: groups of ranks on devices, the links between them, bytes and seconds by how far they lead.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "libcore/plan/place/step_bytes.h"
#include "libcore/spec/cluster_spec.h"
#include "libcore/spec/layout.h"

namespace rw {

// A device by where it is. Devices are numbered node by node, in the cluster's order.
struct DevicePlace {
  int64_t node = 0, device = 0;  // device: on its node
  int64_t domain = 0, leaf = 0;  // domain: unique in the cluster
  int64_t type = 0;              // index of the device type
  int64_t range = 0;             // index of the node type
};
std::vector<DevicePlace> device_places(const ClusterSpec& cluster);
double achievable_flops(const DeviceType& device);  // of its fastest precision

// How far the two ends of a transfer are apart.
enum class LinkLevel : uint8_t { domain, node, leaf, spine, n_levels };
// "links within nodes", "PCIe between link domains", "network within a leaf", "network between leaves"
const char* link_level_name(LinkLevel level);
using LevelBytes = std::array<double, static_cast<size_t>(LinkLevel::n_levels)>;

struct PlacementCost {
  int64_t split_tp = 0;      // tp groups over several nodes
  int64_t mixed_groups = 0;  // tp or dp groups over several device types
  int64_t split_shards = 0;  // --zero-group node: shard groups over several nodes
  double flops = 0;          // of the devices in use, achievable FLOP/s
  double slowest_s = 0;      // of a step: the slowest group of each direction, added up
  double mean_s = 0;         // the same of the mean group
  LevelBytes bytes{};        // of a step, all groups, by how far each transfer leads
  // First no broken shards, then no mixed groups, then faster devices, then fewer seconds, then fewer bytes far away.
  bool better_than(const PlacementCost& o) const;
};

struct CostQuery {
  const ClusterSpec& cluster;
  const std::vector<DevicePlace>& places;
  const Layout& layout;
  StepBytes bytes;
};
// device_of: (ranks) index into places. Collectives are rings that visit a group's members in the devices' order, so
// that each node and leaf is entered once, as communication libraries build them.
PlacementCost placement_cost(const CostQuery& query, const std::vector<int64_t>& device_of);

}  // namespace rw
