#include "libcore/plan/serve/serve_links.h"

#include <algorithm>
#include <memory>

#include "libcore/plan/price/topology.h"

namespace rw {

TensorParallelLinks tensor_parallel_links(const ClusterSpec& cluster, int64_t tp) {
  const Provenance device = provenance_of(cluster.device_of(cluster.nodes.front()).provenance);
  if (tp == 1) return {.seconds = [](CommKind, double) { return 0.0; }, .provenance = device};
  const auto topology = std::make_shared<const Topology>(cluster);  // shared: std::function copies what it holds
  const RankGroup group{.start = 0, .stride = 1, .size = tp};
  const auto seconds = [topology, group](CommKind kind, double bytes) {
    return topology->seconds({.kind = kind, .group = group, .bytes = bytes});
  };
  return {.seconds = [seconds](CommKind kind, double bytes) { return seconds(kind, bytes).s; },
          .provenance = std::max(device, seconds(CommKind::all_reduce, 1 << 16).provenance)};
}

double handoff_bandwidth(const ClusterSpec& cluster, int64_t sender_tp, int64_t receiver_tp) {
  const NodeType& node = cluster.nodes.front();
  const double each = node.nic_bandwidth > 0 && node.nics > 0
                          ? node.nic_bandwidth * static_cast<double>(node.nics) / static_cast<double>(node.devices)
                          : node.link_bandwidth;
  return static_cast<double>(std::min(sender_tp, receiver_tp)) * each * cluster.device_of(node).link_fraction;
}

}  // namespace rw
