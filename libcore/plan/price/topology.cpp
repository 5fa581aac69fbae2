// How a collective's time is found: where the group's members lie (footprint: exact, by arithmetic), what its links
// give it while all groups of its direction run, then the fastest of the ways that communication libraries have:
//
//   within a node   a fit where there is one; else the ring by two protocols, and recursive doubling
//   across nodes    one ring through all ranks, whose slowest link sets the pace; for all_reduce also reduce_scatter
//                   within the nodes, all_reduce between them by each member for its share, all_gather within; a
//                   double tree over chains within the nodes; recursive doubling. Gathers and scatters know rings
//                   alone: so it is in NCCL where a node has several ranks, and its published times say so (below).
//                   Where the network's own collectives were measured, these, between the same steps within the nodes.
//
// Links: a device has its link for itself (a switch does not contend), except across PCIe, where all rings that pass
// from one half of a node to the other share a link as wide as a device's. A node's NICs are shared alike by its
// devices, all of which are in some group of the direction: a group with g members on a node of d devices has g/d of
// them. A ring through m nodes of each leaf goes up once a leaf, so uplinks oversubscribed k times slow it down k/m
// times, if at all; not on rails when the members' places in their nodes are equal.
#include "libcore/plan/price/topology.h"

#include <numeric>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/plan/price/real.h"

namespace rw {
namespace {

// A step of a bulk transfer takes two messages' latencies: the data one way, the credit for the next back. A transfer
// without credits (flags in every word, NCCL's LL protocol) saves the second and half of the bandwidth. With the
// defaults of 2 us within and 5 us between nodes a ring's step over 8 devices a node takes 4.75 us on average; NCCL's
// tuning model (src/graph/tuning.cc, hopLat of Simple) has 3.4 us NVLink, 14 us network: 4.7; and SimAI's published
// table of ring efficiency by size and nodes (astra-sim-alibabacloud, nic_ratio.csv) is met within 30 % at 2 to 128
// nodes, where every step costs 3.7 to 6.2 us.
constexpr double kBulkLatencies = 2, kQuickShare = 0.5;
// What starting a collective takes, in latencies of its rounds, by the same model: 6.6 us against 0.6 (NVLink) and 2.7
// (network) of the LL protocol.
constexpr double kBaseHopsWithin = 6.6 / 0.6, kBaseHopsAcross = 6.6 / 2.7;

struct Parts {
  double intra = 0, inter = 0;
  double total() const { return intra + inter; }
};
void take_less(Parts& best, const Parts& other) {
  if (other.total() < best.total()) best = other;
}

bool is_message(CommKind k) { return k == CommKind::send || k == CommKind::recv; }
CommKind fit_kind(CommKind k) { return k == CommKind::recv ? CommKind::send : k; }
Provenance worse(Provenance a, Provenance b) { return std::max(a, b); }

}  // namespace

// Where a group's members lie, and what the poorest of its links give it.
struct Topology::Footprint {
  int64_t nodes = 0;            // that hold members
  int64_t least = 0, most = 0;  // members on a node
  bool one_type = true;
  const NodeRange* range = nullptr;                      // of the first member
  double link = 0, link_latency = 0, link_slowdown = 1;  // link: slowed down already
  double nic = 0, nic_latency = 0, net_slowdown = 1;  // nic: the group's bytes/s out of its poorest node, slowed down
  double flows_per_nic = 1;
  double message = 0;  // bytes/s of a message across nodes, slowed down
  bool changes_leaf = false;
  Provenance provenance = Provenance::measured;
};

Topology::Topology(const ClusterSpec& cluster) : cluster_(cluster) {
  const std::string where = cluster.where.empty() ? cluster.name : cluster.where;
  int64_t first_node = 0;
  const bool several = cluster.node_count() > 1;
  for (const NodeType& n : cluster_.nodes) {
    if (n.count < 1 || n.devices < 1)
      fail(ErrorKind::usage, "{}: node {}: count is {}, devices is {}, expected at least 1 of both", where, n.name,
           n.count, n.devices);
    const DeviceType& d = cluster_.device_of(n);
    const double fraction = d.link_fraction, pcie = n.pcie_bandwidth * fraction;
    NodeRange r{.first_rank = ranks_, .first_node = first_node, .nodes = n.count, .devices = n.devices};
    r.domain = n.link_domain > 0 ? std::min(n.link_domain, n.devices) : n.devices;
    r.nics = real(n.nics);
    r.link = n.link_bandwidth * fraction;
    r.far_link = n.pcie_bandwidth > 0 ? std::min(pcie, r.link) : r.link;
    r.link_is_shared = n.link == "pcie";
    r.link_latency = n.link_latency;
    const double out = r.nics * n.nic_bandwidth * fraction, device = real(n.devices);
    r.nic_share = out / device;
    r.nic_alone = n.nic_bandwidth * fraction * std::max(1.0, r.nics / device);
    if (pcie > 0) r.nic_share = std::min(r.nic_share, pcie), r.nic_alone = std::min(r.nic_alone, pcie);
    r.nic_latency = n.nic_latency;
    r.provenance = provenance_of(d.provenance);
    if (n.devices > 1 && r.link <= 0)
      fail(ErrorKind::usage, "{}: node {}: link-bandwidth is {} of {} devices, expected more than 0", where, n.name,
           n.link_bandwidth, n.devices);
    if (several && out <= 0)
      fail(ErrorKind::usage,
           "{}: node {}: {} NICs of nic-bandwidth {}, expected more than 0 in a cluster of several nodes", where,
           n.name, n.nics, n.nic_bandwidth);
    for (const CollectiveFit& fit : n.collectives)
      r.fits.push_back(FittedCollective::of(fit, fmt::format("{}: node {}", where, n.name)));
    ranks_ += n.count * n.devices;
    first_node += n.count;
    ranges_.push_back(std::move(r));
  }
  if (ranges_.empty()) fail(ErrorKind::usage, "{}: no [[node]] in the cluster", where);
  for (const CollectiveFit& fit : cluster_.network.collectives)
    network_fits_.push_back(FittedCollective::of(fit, where + ": network"));
}

int64_t Topology::ranks_per_node() const {
  for (const NodeRange& r : ranges_)
    if (r.devices != ranges_.front().devices)
      fail(ErrorKind::usage, "{}: nodes have {} and {} devices; this needs one number of ranks per node", cluster_.name,
           ranges_.front().devices, r.devices);
  return ranges_.front().devices;
}

const Topology::NodeRange& Topology::range_of(int64_t rank) const {
  for (const NodeRange& r : ranges_)
    if (rank < r.end_rank()) return r;
  CHECK(false, "rank %lld of a cluster of %lld", static_cast<long long>(rank), static_cast<long long>(ranks_));
  return ranges_.back();
}

int64_t Topology::node_of(int64_t rank) const {
  const NodeRange& r = range_of(rank);
  return r.first_node + (rank - r.first_rank) / r.devices;
}

Topology::Footprint Topology::footprint(const RankGroup& group) const {
  const int64_t last = group.rank(group.size - 1), stride = group.stride;
  CHECK(group.start >= 0 && stride >= 1 && last < ranks_, "a group ends at rank %lld of a cluster of %lld",
        static_cast<long long>(last), static_cast<long long>(ranks_));
  // Members below a rank.
  const auto below = [&](int64_t rank) {
    return rank <= group.start ? 0 : std::min(group.size, (rank - group.start + stride - 1) / stride);
  };
  Footprint f;
  double poorest_nic = 0;
  bool aligned = true;
  for (const NodeRange& r : ranges_) {
    const int64_t first_member = below(r.first_rank), end_member = below(r.end_rank()),
                  members = end_member - first_member;
    if (members == 0) continue;
    int64_t nodes = members, least = 1, most = 1;
    double link = r.link, slowdown = 1;
    if (stride < r.devices) {
      const int64_t first = (group.rank(first_member) - r.first_rank) / r.devices;
      const int64_t final = (group.rank(end_member - 1) - r.first_rank) / r.devices;
      nodes = final - first + 1;
      least = r.devices;
      const auto look = [&](int64_t node) {
        const int64_t begin = r.first_rank + node * r.devices, a = below(begin), b = below(begin + r.devices);
        const int64_t low = group.rank(a) - begin, high = group.rank(b - 1) - begin;
        least = std::min(least, b - a);
        most = std::max(most, b - a);
        const bool far = low / r.domain != high / r.domain;
        if (far) link = r.far_link;
        const int64_t half = r.devices / 2;
        if ((far || r.link_is_shared) && low < half && high >= half) slowdown = real(std::min(stride, half));
      };
      // Members are spread over the nodes between in a pattern that repeats.
      const int64_t period = stride / std::gcd(stride, r.devices);
      for (int64_t node = first; node <= std::min(final, first + period); ++node) look(node);
      look(final);
    }
    aligned = aligned && (stride % r.devices == 0 || (r.devices % stride == 0 && least == most));
    const double nic = real(least) * r.nic_share;
    const double senders = real(std::min(stride, r.devices));
    const double message = std::min(r.nic_alone, r.nic_share * real(r.devices) / senders);
    if (f.range == nullptr) {
      f.range = &r;
      f.least = least, f.link = link / slowdown, poorest_nic = nic, f.message = message;
    } else {
      f.one_type = false;
      aligned = aligned && r.devices == f.range->devices;
      f.least = std::min(f.least, least);
      f.link = std::min(f.link, link / slowdown);
      poorest_nic = std::min(poorest_nic, nic);
      f.message = std::min(f.message, message);
    }
    f.nodes += nodes;
    f.most = std::max(f.most, most);
    f.link_slowdown = std::max(f.link_slowdown, slowdown);
    f.link_latency = std::max(f.link_latency, r.link_latency);
    f.nic_latency = std::max(f.nic_latency, r.nic_latency);
    f.flows_per_nic = std::max(f.flows_per_nic, real(r.devices) / r.nics);
    f.provenance = worse(f.provenance, r.provenance);
  }
  const NetworkSpec& net = cluster_.network;
  if (f.nodes > 1 && net.nodes_per_leaf > 0 && !(net.rails && aligned)) {
    const int64_t span = node_of(last) / net.nodes_per_leaf - node_of(group.start) / net.nodes_per_leaf + 1;
    const int64_t leaves = std::min(f.nodes, span);
    f.changes_leaf = leaves > 1;
    if (f.changes_leaf) {
      const double nodes_per_leaf = real(f.nodes) / real(leaves);
      f.net_slowdown = std::max(1.0, net.oversubscription / nodes_per_leaf);
      f.nic_latency += net.hop_latency / nodes_per_leaf;
    }
  }
  f.nic = poorest_nic / f.net_slowdown;
  return f;
}

namespace {

struct Link {
  double alpha, bandwidth;
  WireCost bulk() const { return {kBulkLatencies * alpha, 1 / bandwidth}; }
  WireCost quick() const { return {alpha, 1 / (kQuickShare * bandwidth)}; }
  double tree(double n, int64_t p, double ways) const {
    return pipelined_s(ways * real(log2_ceil(p)) * bulk().alpha_s, ways * n / bandwidth);
  }
};

double formula_within(CommKind kind, double n, int64_t p, const Link& link) {
  switch (kind) {
    case CommKind::all_reduce:
      return std::min({ring_all_reduce_s(n, p, link.bulk()), ring_all_reduce_s(n, p, link.quick()),
                       doubling_all_reduce_s(n, p, link.quick())});
    case CommKind::reduce_scatter:
    case CommKind::all_gather: return std::min(ring_parts_s(n, p, link.bulk()), ring_parts_s(n, p, link.quick()));
    default: return link.tree(n, p, 1);
  }
}

struct WithinNode {
  const std::vector<FittedCollective>* fits;  // null: the nodes are of several types
  Link link;
  double slowdown;  // of the link, for fits
  Provenance formula;
};
struct Timed {
  double s;
  Provenance provenance;
};
Timed time_within(CommKind kind, double n, int64_t p, const WithinNode& w) {
  if (p < 2) return {0, Provenance::measured};
  const FittedCollective* fit = w.fits == nullptr ? nullptr : find_fit(*w.fits, kind, p);
  if (fit == nullptr) return {formula_within(kind, n, p, w.link), w.formula};
  return {fitted_seconds(*fit, {.bytes = n, .ranks = p, .base_hops = kBaseHopsWithin, .slowdown = w.slowdown}),
          fit->provenance};
}

}  // namespace

Topology::Seconds Topology::seconds(const Traffic& traffic) const {
  if (traffic.group.size <= 1 || traffic.bytes <= 0) return {.provenance = Provenance::measured};
  const Footprint f = footprint(traffic.group);
  if (is_message(traffic.kind)) return message(traffic, f);
  return f.nodes == 1 ? within(traffic, f) : across(traffic, f);
}

Topology::Seconds Topology::message(const Traffic& traffic, const Footprint& f) const {
  const CommKind kind = fit_kind(traffic.kind);
  if (f.nodes == 1) {
    const FittedCollective* fit = find_fit(f.range->fits, kind, 2);
    const double s = fit != nullptr ? fitted_seconds(*fit, {.bytes = traffic.bytes, .slowdown = f.link_slowdown})
                                    : f.link_latency + traffic.bytes / f.link;
    return {.s = s, .provenance = fit != nullptr ? fit->provenance : f.provenance, .intra_s = s};
  }
  // Of a leaf's nodes only those within a stride of its end send to the next.
  const NetworkSpec& net = cluster_.network;
  const double devices = real(f.range->devices), step = std::max(1.0, real(traffic.group.stride) / devices);
  const double slowdown =
      f.changes_leaf ? std::max(1.0, net.oversubscription * std::min(1.0, step / real(net.nodes_per_leaf))) : 1;
  const FittedCollective* fit = find_fit(network_fits_, kind, 2);
  const double senders = std::min(real(traffic.group.stride), devices);
  const double latency = f.range->nic_latency + (f.changes_leaf ? net.hop_latency : 0);
  const double s = fit != nullptr
                       ? fitted_seconds(*fit, {.bytes = traffic.bytes,
                                               .slowdown = slowdown * std::max(1.0, senders / f.range->nics)})
                       : latency + traffic.bytes * slowdown / f.message;
  return {.s = s, .provenance = fit != nullptr ? fit->provenance : f.provenance, .crosses_nodes = true, .inter_s = s};
}

Topology::Seconds Topology::within(const Traffic& traffic, const Footprint& f) const {
  const WithinNode w{&f.range->fits, {f.link_latency, f.link}, f.link_slowdown, f.provenance};
  const Timed t = time_within(traffic.kind, traffic.bytes, traffic.group.size, w);
  return {.s = t.s, .provenance = t.provenance, .intra_s = t.s};
}

Topology::Seconds Topology::across(const Traffic& traffic, const Footprint& f) const {
  const double n = traffic.bytes;
  const int64_t p = traffic.group.size;
  const CommKind kind = traffic.kind;
  const bool reduces_all = kind == CommKind::all_reduce;
  const WithinNode w{f.one_type ? &f.range->fits : nullptr, {f.link_latency, f.link}, f.link_slowdown, f.provenance};
  // What one member has for its share of the data.
  const double g = real(f.least), share = n / g;
  const Link net{f.nic_latency, f.nic / g};
  const auto result = [](const Parts& parts, Provenance provenance) {
    return Seconds{parts.total(), provenance, true, parts.intra, parts.inter};
  };
  // The steps within the nodes, before and after those between them.
  const auto around = [&]() -> Timed {
    const Timed a = time_within(reduces_all ? CommKind::reduce_scatter : kind, n, f.most, w);
    if (!reduces_all) return a;
    const Timed b = time_within(CommKind::all_gather, n, f.most, w);
    return {a.s + b.s, worse(a.provenance, b.provenance)};
  };
  if (const FittedCollective* fit = find_fit(network_fits_, kind, f.nodes)) {
    const Timed inside = around();
    const double s = fitted_seconds(
        *fit,
        {.bytes = share, .ranks = f.nodes, .base_hops = kBaseHopsAcross, .slowdown = f.net_slowdown * f.flows_per_nic});
    return result({inside.s, s}, worse(inside.provenance, fit->provenance));
  }

  const bool net_is_slowest = f.most == 1 || f.nic <= f.link;
  const double slowest = f.most == 1 ? f.nic : std::min(f.nic, f.link);
  const double chain = f.most > 1 ? real(f.most - 1) * kBulkLatencies * f.link_latency : 0;
  if (kind == CommKind::broadcast) {
    return result({chain, pipelined_s(real(log2_ceil(f.nodes)) * net.bulk().alpha_s, n / slowest)}, f.provenance);
  }
  // One ring through all: of its p links as many lead out of nodes as there are nodes.
  const double rounds = real(reduces_all ? 2 * (p - 1) : p - 1), flow = rounds / real(p) * n / slowest;
  const double out = real(f.nodes) / real(p);
  Parts best{rounds * (1 - out) * kBulkLatencies * f.link_latency, rounds * out * net.bulk().alpha_s};
  (net_is_slowest ? best.inter : best.intra) += flow;
  if (!reduces_all) return result(best, f.provenance);

  Provenance provenance = f.provenance;
  if (f.most > 1) {
    const Timed inside = around();
    const Parts two_level{inside.s,
                          std::min(ring_all_reduce_s(share, f.nodes, net.bulk()), net.tree(share, f.nodes, 2))};
    if (two_level.total() < best.total()) best = two_level, provenance = worse(provenance, inside.provenance);
  }
  const double depth = 2 * (chain + real(log2_ceil(f.nodes)) * net.bulk().alpha_s);
  const double tree = pipelined_s(depth, 2 * n / slowest);
  take_less(best, {2 * chain, tree - 2 * chain});
  const Parts doubling{f.most > 1 ? doubling_all_reduce_s(n, f.most, w.link.quick()) : 0,
                       doubling_all_reduce_s(n, f.nodes, {net.alpha, 1 / net.bandwidth})};
  take_less(best, doubling);
  // Whatever starts a small operation within a node starts it here too.
  if (f.most > 1) {
    const Timed alone = time_within(kind, n, f.most, w);
    if (best.total() < alone.s) best.intra += alone.s - best.total(), provenance = worse(provenance, alone.provenance);
  }
  return result(best, provenance);
}

Topology::Crossing Topology::crossing(const Traffic& traffic) const {
  const RankGroup& group = traffic.group;
  if (group.size <= 1 || traffic.bytes <= 0) return {};
  const Footprint f = footprint(group);
  if (f.nodes == 1) return {};
  const double groups = real(ranks_ / group.size), p = real(group.size), devices = real(f.range->devices);
  if (is_message(traffic.kind)) {
    const double senders = real(std::min(group.stride, f.range->devices));
    return {.bytes = groups * real(f.nodes - 1) * traffic.bytes,
            .busiest_nic = senders * traffic.bytes / f.range->nics};
  }
  const double edge = (traffic.kind == CommKind::all_reduce  ? 2 * (p - 1) / p
                       : traffic.kind == CommKind::broadcast ? 1
                                                             : (p - 1) / p) *
                      traffic.bytes;
  // A broadcast is a chain: one link fewer than a ring.
  const double links = real(traffic.kind == CommKind::broadcast ? f.nodes - 1 : f.nodes);
  return {.bytes = groups * links * edge, .busiest_nic = devices / real(f.least) * edge / f.range->nics};
}

}  // namespace rw
