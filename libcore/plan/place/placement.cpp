#include "libcore/plan/place/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

enum class Axis : uint8_t { tp, dp, pp };
using Order = std::array<Axis, 3>;  // innermost first
constexpr Order kOrders[] = {{Axis::tp, Axis::dp, Axis::pp}, {Axis::tp, Axis::pp, Axis::dp},
                             {Axis::dp, Axis::tp, Axis::pp}, {Axis::dp, Axis::pp, Axis::tp},
                             {Axis::pp, Axis::tp, Axis::dp}, {Axis::pp, Axis::dp, Axis::tp}};
const char* axis_name(Axis a) { return a == Axis::tp ? "tp" : a == Axis::dp ? "dp" : "pp"; }
int64_t axis_size(const Layout& l, Axis a) { return a == Axis::tp ? l.tp : a == Axis::dp ? l.dp : l.pp; }

// Blocks of the innermost and of both inner axes that are not cut by the edge of a node or of a device type.
struct Whole {
  bool nodes, types;
};

// The devices that positions 0, 1, ... get; empty when keeping blocks whole leaves too few.
std::vector<int64_t> positions(const std::vector<int64_t>& free, const std::vector<DevicePlace>& places, int64_t n,
                               int64_t inner, int64_t middle, Whole whole) {
  const auto at = [&](size_t i) -> const DevicePlace& { return places[static_cast<size_t>(free[i])]; };
  // Devices from i on that share its node (or its type), those that follow each other in the list.
  std::vector<int64_t> node_left(free.size()), type_left(free.size());
  for (size_t i = free.size(); i-- > 0;) {
    const bool more = i + 1 < free.size();
    node_left[i] = more && at(i).node == at(i + 1).node ? node_left[i + 1] + 1 : 1;
    type_left[i] = more && at(i).type == at(i + 1).type ? type_left[i + 1] + 1 : 1;
  }
  std::vector<int64_t> taken;
  taken.reserve(static_cast<size_t>(n));
  size_t i = 0;
  while (static_cast<int64_t>(taken.size()) < n && i < free.size()) {
    const auto filled = static_cast<int64_t>(taken.size());
    if (whole.types && filled % middle == 0 && type_left[i] < middle) {
      i += static_cast<size_t>(type_left[i]);
      continue;
    }
    if (whole.nodes && filled % inner == 0 && node_left[i] < inner) {
      i += static_cast<size_t>(node_left[i]);
      continue;
    }
    taken.push_back(free[i++]);
  }
  if (static_cast<int64_t>(taken.size()) < n) taken.clear();
  return taken;
}

// Rank by position of an order, then the ranks of each node by its devices.
std::vector<int64_t> devices_of_ranks(const Layout& l, const Order& order, const std::vector<int64_t>& device_at,
                                      const std::vector<DevicePlace>& places) {
  const auto n = static_cast<size_t>(l.ranks());
  std::vector<int64_t> device_of(n);
  const int64_t size0 = axis_size(l, order[0]), size1 = axis_size(l, order[1]);
  for (int64_t p = 0; p < l.ranks(); ++p) {
    int64_t at[3] = {};
    at[static_cast<size_t>(order[0])] = p % size0;
    at[static_cast<size_t>(order[1])] = p / size0 % size1;
    at[static_cast<size_t>(order[2])] = p / size0 / size1;
    device_of[static_cast<size_t>(at[0] + l.tp * (at[1] + l.dp * at[2]))] = device_at[static_cast<size_t>(p)];
  }
  std::map<int64_t, std::vector<int64_t>> ranks_on, devices_on;
  for (size_t r = 0; r < n; ++r) {
    const int64_t node = places[static_cast<size_t>(device_of[r])].node;
    ranks_on[node].push_back(static_cast<int64_t>(r));
    devices_on[node].push_back(device_of[r]);
  }
  for (auto& [node, devices] : devices_on) {
    std::sort(devices.begin(), devices.end());
    const std::vector<int64_t>& ranks = ranks_on[node];
    for (size_t i = 0; i < ranks.size(); ++i) device_of[static_cast<size_t>(ranks[i])] = devices[i];
  }
  return device_of;
}

// The free devices in the orders worth trying, different ones only.
std::vector<std::vector<int64_t>> device_orders(const ClusterSpec& cluster, const std::vector<DevicePlace>& places,
                                                const std::vector<int64_t>& free) {
  std::map<std::pair<int64_t, int64_t>, int64_t> free_in;  // (type, leaf)
  std::map<int64_t, int64_t> free_in_leaf;
  for (const int64_t d : free) {
    const DevicePlace& p = places[static_cast<size_t>(d)];
    ++free_in[{p.type, p.leaf}];
    ++free_in_leaf[p.leaf];
  }
  const auto place = [&](int64_t d) -> const DevicePlace& { return places[static_cast<size_t>(d)]; };
  const auto flops = [&](int64_t d) { return achievable_flops(cluster.devices[static_cast<size_t>(place(d).type)]); };
  std::vector<std::vector<int64_t>> orders{free};
  const auto add = [&](auto before) {
    std::vector<int64_t> order = free;
    std::stable_sort(order.begin(), order.end(), before);
    if (std::find(orders.begin(), orders.end(), order) == orders.end()) orders.push_back(std::move(order));
  };
  add([&](int64_t a, int64_t b) { return free_in_leaf[place(a).leaf] > free_in_leaf[place(b).leaf]; });
  add([&](int64_t a, int64_t b) { return flops(a) > flops(b); });
  add([&](int64_t a, int64_t b) {
    if (flops(a) != flops(b)) return flops(a) > flops(b);
    const auto in = [&](int64_t d) { return free_in[{place(d).type, place(d).leaf}]; };
    return in(a) > in(b);
  });
  return orders;
}

std::vector<int64_t> free_devices(const PlaceQuery& q, const std::vector<DevicePlace>& places) {
  std::vector<int64_t> free;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto node = static_cast<size_t>(places[i].node);
    if (q.nodes.empty() || places[i].device >= q.nodes[node].occupied) free.push_back(static_cast<int64_t>(i));
  }
  const auto n_free = static_cast<int64_t>(free.size()), all = static_cast<int64_t>(places.size());
  const int64_t missing = q.layout.ranks() + q.reserve - n_free;
  if (missing > 0)
    fail(ErrorKind::usage,
         "tp {} x dp {} x pp {} needs {} devices{}, but {} of the cluster's {} are free{}: {} are missing; use more "
         "nodes "
         "(--nodes), a smaller layout{}",
         q.layout.tp, q.layout.dp, q.layout.pp, q.layout.ranks(),
         q.reserve > 0 ? fmt::format(" beside {} kept free", q.reserve) : "", n_free, all,
         n_free < all ? fmt::format(" ({} are occupied)", all - n_free) : "", missing,
         q.reserve > 0 ? " or a smaller --reserve" : "");
  return free;
}

void add_notes(const PlaceQuery& q, RankPlacement& p) {
  const PlacementCost& c = p.placed;
  if (c.mixed_groups > 0)
    p.notes.push_back(
        fmt::format("{} tensor- or data-parallel groups hold devices of several types: in each the "
                    "slowest sets the pace",
                    c.mixed_groups));
  if (c.split_tp > 0)
    p.notes.push_back(
        fmt::format("{} tensor-parallel groups lie over several nodes: their collectives go through the "
                    "network",
                    c.split_tp));
  if (c.split_shards > 0)
    p.notes.push_back(fmt::format("--zero-group node: {} shard groups lie over several nodes", c.split_shards));
  const auto [least, most] = std::minmax_element(p.stage_flops.begin(), p.stage_flops.end());
  if (*least < *most)
    p.notes.push_back("pipeline stages are of different speed: give slower ones fewer layers (--stage-layers)");
  if (q.reserve > 0) {
    std::vector<bool> used(p.places.size());
    for (const int64_t d : p.device_of) used[static_cast<size_t>(d)] = true;
    std::map<int64_t, int64_t> kept;
    for (const int64_t d : free_devices(q, p.places))
      if (!used[static_cast<size_t>(d)]) ++kept[p.places[static_cast<size_t>(d)].node];
    std::string text;
    for (const auto& [node, n] : kept) {
      if (text.size() > 200) {
        text += ", ...";
        break;
      }
      const std::string& host = q.nodes.empty() ? "" : q.nodes[static_cast<size_t>(node)].host;
      text +=
          fmt::format("{}{} on {}", text.empty() ? "" : ", ", n, host.empty() ? fmt::format("node {}", node) : host);
    }
    p.notes.push_back("devices that stay free: " + text);
  }
}

}  // namespace

bool RankPlacement::ranks_follow_nodes() const {
  return std::is_sorted(device_of.begin(), device_of.end(), [&](int64_t a, int64_t b) {
    return places[static_cast<size_t>(a)].node < places[static_cast<size_t>(b)].node;
  });
}

RankPlacement place_ranks(const PlaceQuery& q) {
  RankPlacement best;
  best.places = device_places(q.cluster);
  CHECK(q.nodes.empty() || static_cast<int64_t>(q.nodes.size()) == q.cluster.node_count(), "%zu of %lld nodes named",
        q.nodes.size(), static_cast<long long>(q.cluster.node_count()));
  const std::vector<int64_t> free = free_devices(q, best.places);
  const CostQuery cost{q.cluster, best.places, q.layout, q.bytes};
  const int64_t n = q.layout.ranks();
  for (const std::vector<int64_t>& list : device_orders(q.cluster, best.places, free))
    for (const Order& order : kOrders)
      for (const Whole whole : {Whole{false, false}, Whole{true, false}, Whole{false, true}, Whole{true, true}}) {
        const int64_t inner = axis_size(q.layout, order[0]), middle = inner * axis_size(q.layout, order[1]);
        const std::vector<int64_t> device_at = positions(list, best.places, n, inner, middle, whole);
        if (device_at.empty()) continue;
        std::vector<int64_t> device_of = devices_of_ranks(q.layout, order, device_at, best.places);
        if (device_of == best.device_of) continue;
        const PlacementCost c = placement_cost(cost, device_of);
        if (best.device_of.empty()) best.naive = c;  // the first: the mesh's own order, packed
        else if (!c.better_than(best.placed)) continue;
        best.placed = c;
        best.device_of = std::move(device_of);
        best.order = fmt::format("{}, {}, {}", axis_name(order[0]), axis_name(order[1]), axis_name(order[2]));
      }
  best.stage_flops.assign(static_cast<size_t>(q.layout.pp), 1e300);
  for (int64_t r = 0; r < n; ++r) {
    double& flops = best.stage_flops[static_cast<size_t>(r / (q.layout.tp * q.layout.dp))];
    flops = std::min(flops, achievable_flops(q.cluster.devices[static_cast<size_t>(best.place(r).type)]));
  }
  add_notes(q, best);
  return best;
}

// Each layer goes to the stage that is fastest with it: alike layers cannot do better (moving one from where greedy put
// it only makes a stage that was no faster slower).
std::vector<int64_t> deal_layers_by_speed(int64_t layers, const std::vector<double>& speeds) {
  const auto stages = static_cast<int64_t>(speeds.size());
  if (layers < stages)
    fail(ErrorKind::usage, "{} layers for {} pipeline stages: expected at least one each; use a smaller --pp", layers,
         stages);
  std::vector<int64_t> dealt(speeds.size(), 1);
  for (int64_t i = stages; i < layers; ++i) {
    size_t best = 0;
    const auto seconds = [&](size_t s) { return static_cast<double>(dealt[s] + 1) / speeds[s]; };
    for (size_t s = 1; s < speeds.size(); ++s)
      if (seconds(s) < seconds(best)) best = s;
    ++dealt[best];
  }
  return dealt;
}

}  // namespace rw
