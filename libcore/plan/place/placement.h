// Which device each rank gets: tensor-parallel groups within the links that are fast, pipeline neighbours near each
// other, data-parallel rings over equal places of the nodes; around other jobs, and with devices kept free.
//
// All six orders in which tp, dp and pp can be laid over the devices (the first fills neighbours) are tried, packed and
// with groups kept within nodes and device types, over the free devices in the cluster's order, by leaf (the fullest
// first, so that few leaves are used) and by device type (the fastest first); the least cost wins (placement_cost.h).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/plan/place/placement_cost.h"

namespace rw {

struct NodeUse {
  std::string host;      // ""; its name
  int64_t occupied = 0;  // devices that other jobs have: the first ones
};

struct PlaceQuery {
  const Layout& layout;
  const ClusterSpec& cluster;
  std::vector<NodeUse> nodes;  // (nodes) in the cluster's order; empty: all free and nameless
  int64_t reserve = 0;         // devices to keep free
  StepBytes bytes;
};

struct RankPlacement {
  std::vector<int64_t> device_of;  // (ranks) index into places
  std::vector<DevicePlace> places;
  std::string order;                // "tp, dp, pp": innermost first
  PlacementCost naive, placed;      // naive: ranks in order over the free devices, as mpirun does by itself
  std::vector<double> stage_flops;  // (pp) of the slowest device of each stage, achievable FLOP/s
  std::vector<std::string> notes;   // for people
  const DevicePlace& place(int64_t rank) const {
    return places[static_cast<size_t>(device_of[static_cast<size_t>(rank)])];
  }
  bool ranks_follow_nodes() const;  // ranks fill the nodes in the cluster's order
};
// Error{usage} says how many devices are missing. On every node lower ranks have lower devices, because that is how a
// job's processes number themselves there.
RankPlacement place_ranks(const PlaceQuery& query);

// Layers dealt to stages so that the slowest stage, layers / speed, is as fast as can be; each has at least one. All
// layers are alike. Error{usage} with fewer layers than stages.
std::vector<int64_t> deal_layers_by_speed(int64_t layers, const std::vector<double>& speeds);

}  // namespace rw
