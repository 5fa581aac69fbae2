#include "libcore/plan/place/placement_cost.h"

#include <algorithm>
#include <cmath>

#include "libcore/base/check.h"
#include "libcore/comm/mesh.h"
#include "libcore/plan/price/real.h"

namespace rw {
namespace {

// Bytes/s of a node type's links.
struct Links {
  double domain, node, nic;  // nic: of a device when all of the node send
};

// The groups of one direction: members and what one of its links carries.
struct Groups {
  enum class Kind : uint8_t { tp, shard, replica, pp } kind;
  int64_t stride, size, count;  // count: groups
  double edge_bytes;            // through each link of a ring, or between neighbours
};

class Pricer {
 public:
  Pricer(const CostQuery& q, const std::vector<int64_t>& device_of) : q_(q), device_of_(device_of) {
    for (const NodeType& n : q.cluster.nodes) {
      const double fraction = q.cluster.device_of(n).link_fraction, link = n.link_bandwidth * fraction;
      const double pcie = n.pcie_bandwidth > 0 ? std::min(link, n.pcie_bandwidth * fraction) : link;
      links_.push_back({link, pcie, real(n.nics) * n.nic_bandwidth * fraction / real(n.devices)});
    }
  }

  void add(const Groups& d) {
    double slowest = 0, sum = 0;
    for (int64_t g = 0; g < d.count; ++g) {
      // Groups of a direction fill blocks of stride * size ranks, `stride` of them side by side.
      const RankGroup group{g / d.stride * d.stride * d.size + g % d.stride, d.stride, d.size};
      const double s = d.kind == Groups::Kind::pp ? add_chain(group, d.edge_bytes) : add_ring(group, d);
      slowest = std::max(slowest, s);
      sum += s;
    }
    cost_.slowest_s += slowest;
    cost_.mean_s += sum / real(d.count);
  }
  const PlacementCost& cost() const { return cost_; }

 private:
  const DevicePlace& place(int64_t rank) const {
    return q_.places[static_cast<size_t>(device_of_[static_cast<size_t>(rank)])];
  }
  const Links& links(const DevicePlace& p) const { return links_[static_cast<size_t>(p.range)]; }
  static LinkLevel level(const DevicePlace& a, const DevicePlace& b) {
    if (a.leaf != b.leaf) return LinkLevel::spine;
    if (a.node != b.node) return LinkLevel::leaf;
    return a.domain == b.domain ? LinkLevel::domain : LinkLevel::node;
  }
  void count(LinkLevel level, double bytes) { cost_.bytes[static_cast<size_t>(level)] += bytes; }

  double add_chain(const RankGroup& group, double bytes) {
    double slowest = 0;
    for (int64_t i = 0; i + 1 < group.size; ++i) {
      const DevicePlace &a = place(group.rank(i)), &b = place(group.rank(i + 1));
      const LinkLevel l = level(a, b);
      count(l, bytes);
      double bandwidth = std::min(links(a).domain, links(b).domain);
      if (l == LinkLevel::node) bandwidth = std::min(links(a).node, links(b).node);
      if (l >= LinkLevel::leaf) bandwidth = std::min(links(a).nic, links(b).nic);
      if (l == LinkLevel::spine && !(q_.cluster.network.rails && a.device == b.device))
        bandwidth /= q_.cluster.network.oversubscription;
      slowest = std::max(slowest, bytes / bandwidth);
    }
    return slowest;
  }

  // A ring in the devices' order. Its slowest link sets the pace: a node's share of NICs is as large as its members are
  // many; a leaf's uplink is passed once for all of its nodes.
  double add_ring(const RankGroup& group, const Groups& d) {
    members_.clear();
    for (int64_t i = 0; i < group.size; ++i) members_.push_back(device_of_[static_cast<size_t>(group.rank(i))]);
    if (!std::is_sorted(members_.begin(), members_.end())) std::sort(members_.begin(), members_.end());
    const auto at = [&](size_t i) -> const DevicePlace& { return q_.places[static_cast<size_t>(members_[i])]; };
    double link = 1e300, nic = 1e300;
    int64_t nodes = 0, leaves = 0, on_node = 0, on_first = 0, first_on_node = -1;
    bool mixed = false, aligned = true;
    for (size_t i = 0; i < members_.size(); ++i) {
      const DevicePlace &a = at(i), &b = at(i + 1 < members_.size() ? i + 1 : 0);
      const LinkLevel l = level(a, b);
      count(l, d.edge_bytes);
      if (on_node == 0) {
        if (first_on_node < 0) first_on_node = a.device;
        aligned = aligned && a.device == first_on_node;
      }
      ++on_node;
      mixed = mixed || a.type != at(0).type;
      const bool last = i + 1 == members_.size();
      if (last || a.node != b.node) {
        if (nodes > 0 && on_node != on_first) aligned = false;
        if (nodes == 0) on_first = on_node;
        ++nodes;
        nic = std::min(nic, real(on_node) * links(a).nic);
        on_node = 0;
      }
      if (last || a.leaf != b.leaf) ++leaves;
      if (l == LinkLevel::domain) link = std::min(link, links(a).domain);
      if (l == LinkLevel::node) link = std::min(link, links(a).node);
    }
    if (nodes > 1) {
      const NetworkSpec& net = q_.cluster.network;
      if (leaves > 1 && !(net.rails && aligned))
        nic /= std::max(1.0, net.oversubscription * real(leaves) / real(nodes));
      link = std::min(link, nic);
    }
    if (nodes > 1 && d.kind == Groups::Kind::tp) ++cost_.split_tp;
    if (nodes > 1 && d.kind == Groups::Kind::shard && q_.layout.zero_group == ZeroGroup::node) ++cost_.split_shards;
    if (mixed) ++cost_.mixed_groups;
    return d.edge_bytes / link;
  }

  const CostQuery& q_;
  const std::vector<int64_t>& device_of_;
  std::vector<Links> links_;
  std::vector<int64_t> members_;
  PlacementCost cost_;
};

// Ranks of a node, where all node types agree; 0 otherwise.
int64_t common_devices(const ClusterSpec& cluster) {
  for (const NodeType& n : cluster.nodes)
    if (n.devices != cluster.nodes.front().devices) return 0;
  return cluster.nodes.front().devices;
}

}  // namespace

const char* link_level_name(LinkLevel level) {
  switch (level) {
    case LinkLevel::domain: return "links within nodes";
    case LinkLevel::node: return "PCIe between link domains";
    case LinkLevel::leaf: return "network within a leaf";
    case LinkLevel::spine: return "network between leaves";
    case LinkLevel::n_levels: break;
  }
  return "?";
}

double achievable_flops(const DeviceType& d) {
  return std::max({d.peak_bf16, d.peak_f16, d.peak_f32}) * d.gemm_fraction;
}

std::vector<DevicePlace> device_places(const ClusterSpec& cluster) {
  std::vector<DevicePlace> places;
  int64_t node = 0, domain = 0, range = 0;
  for (const NodeType& n : cluster.nodes) {
    const int64_t type = &cluster.device_of(n) - cluster.devices.data();
    const int64_t per_domain = n.link_domain > 0 ? std::min(n.link_domain, n.devices) : n.devices;
    const int64_t domains = (n.devices + per_domain - 1) / per_domain;
    for (int64_t i = 0; i < n.count; ++i, ++node, domain += domains)
      for (int64_t d = 0; d < n.devices; ++d)
        places.push_back({.node = node,
                          .device = d,
                          .domain = domain + d / per_domain,
                          .leaf = cluster.network.nodes_per_leaf > 0 ? node / cluster.network.nodes_per_leaf : 0,
                          .type = type,
                          .range = range});
    ++range;
  }
  return places;
}

bool PlacementCost::better_than(const PlacementCost& o) const {
  if (split_shards != o.split_shards) return split_shards < o.split_shards;
  if (mixed_groups != o.mixed_groups) return mixed_groups < o.mixed_groups;
  // Rounding must not decide between placements that are equally good.
  const auto differ = [](double a, double b) { return std::abs(a - b) > 1e-9 * std::max(a, b); };
  if (differ(flops, o.flops)) return flops > o.flops;
  if (differ(slowest_s, o.slowest_s)) return slowest_s < o.slowest_s;
  for (const LinkLevel l : {LinkLevel::spine, LinkLevel::leaf, LinkLevel::node}) {
    const double a = bytes[static_cast<size_t>(l)], b = o.bytes[static_cast<size_t>(l)];
    if (differ(a, b)) return a < b;
  }
  return differ(mean_s, o.mean_s) && mean_s < o.mean_s;
}

PlacementCost placement_cost(const CostQuery& query, const std::vector<int64_t>& device_of) {
  const Layout& l = query.layout;
  CHECK(static_cast<int64_t>(device_of.size()) == l.ranks(), "%zu ranks placed of %lld", device_of.size(),
        static_cast<long long>(l.ranks()));
  Pricer pricer(query, device_of);
  const auto ring = [](double bytes, int64_t p) { return 2 * bytes * real(p - 1) / real(p); };
  using Kind = Groups::Kind;
  if (l.tp > 1) pricer.add({Kind::tp, 1, l.tp, l.ranks() / l.tp, ring(query.bytes.tp, l.tp)});
  // Where nodes differ there is no shard group of a node: all of dp then.
  const int64_t devices = common_devices(query.cluster);
  const int64_t shard = devices > 0 ? zero_ranks(l, devices) : l.zero > 0 ? l.dp : 1, replicas = l.dp / shard;
  if (shard > 1) pricer.add({Kind::shard, l.tp, shard, l.ranks() / shard, ring(query.bytes.shard, shard)});
  if (replicas > 1)
    pricer.add({Kind::replica, l.tp * shard, replicas, l.ranks() / replicas, ring(query.bytes.replica, replicas)});
  if (l.pp > 1) pricer.add({Kind::pp, l.tp * l.dp, l.pp, l.tp * l.dp, query.bytes.pp});
  PlacementCost cost = pricer.cost();
  for (const int64_t d : device_of)
    cost.flops +=
        achievable_flops(query.cluster.devices[static_cast<size_t>(query.places[static_cast<size_t>(d)].type)]);
  return cost;
}

}  // namespace rw
