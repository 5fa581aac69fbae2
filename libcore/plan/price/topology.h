// Seconds of collectives and messages over a cluster: the algorithms' bytes and messages, over links that groups share.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/comm/mesh.h"
#include "libcore/plan/price/collective_seconds.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// The cluster as ranks see it: rank r is device r % devices of its node. Nodes of several types follow each other in
// the file's order.
class Topology {
 public:
  // Error{usage}: nodes without devices, links or (when there are several) NICs.
  explicit Topology(const ClusterSpec& cluster);
  const ClusterSpec& cluster() const { return cluster_; }
  int64_t ranks_per_node() const;  // Error{usage} when node types differ in it and a plan needs one number
  int64_t ranks() const { return ranks_; }
  int64_t node_of(int64_t rank) const;

  // Groups of one direction of a mesh: `group` is one of them, and all its like run at the same time, sharing links.
  // bytes as CommCount says: all_reduce, broadcast the buffer; reduce_scatter, all_gather all parts; send, recv the
  // message, between neighbours of the group: of several pairs the slowest (for one pair, a group of two).
  struct Traffic {
    CommKind kind;
    RankGroup group;
    double bytes;  // of one operation
  };
  struct Seconds {
    double s = 0;
    Provenance provenance = Provenance::roofline;  // of the weakest number in it
    bool crosses_nodes = false;
    double intra_s = 0, inter_s = 0;  // of it, by where the time goes
  };
  // Nothing for one rank or no bytes. The fastest of the algorithms that communication libraries have (topology.cpp).
  // Takes well below a microsecond and allocates nothing.
  Seconds seconds(const Traffic& traffic) const;
  // Bytes that one operation moves between nodes, over all of the groups, and the busiest NIC's share (bytes out). By
  // rings: the least that collectives can do.
  struct Crossing {
    double bytes = 0, busiest_nic = 0;
  };
  Crossing crossing(const Traffic& traffic) const;

  // Nodes of one type; bandwidths are what large collectives reach (link_fraction). Public for topology.cpp alone.
  struct NodeRange {
    int64_t first_rank = 0, first_node = 0, nodes = 0, devices = 1, domain = 0;
    double nics = 1;
    double link = 0, far_link = 0;  // bytes/s of a device to its domain, and to devices beyond
    bool link_is_shared = false;    // pcie: rings that cross the node's middle share it
    double link_latency = 0;
    double nic_share = 0;  // bytes/s that a device has when all of the node send at once
    double nic_alone = 0;  // when it sends alone
    double nic_latency = 0;
    Provenance provenance = Provenance::roofline;
    std::vector<FittedCollective> fits = {};
    int64_t end_rank() const { return first_rank + nodes * devices; }
  };
  struct Footprint;

 private:
  const NodeRange& range_of(int64_t rank) const;
  Footprint footprint(const RankGroup& group) const;
  Seconds message(const Traffic& traffic, const Footprint& f) const;
  Seconds within(const Traffic& traffic, const Footprint& f) const;
  Seconds across(const Traffic& traffic, const Footprint& f) const;

  ClusterSpec cluster_;
  int64_t ranks_ = 0;
  std::vector<NodeRange> ranges_;
  std::vector<FittedCollective> network_fits_;
};

}  // namespace rw
