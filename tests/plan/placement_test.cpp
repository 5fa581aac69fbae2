#include "libcore/plan/place/placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "libcore/base/error.h"
#include "libcore/comm/mesh.h"
#include "libcore/plan/place/place_hosts.h"

using namespace rw;

namespace {

DeviceType device(const std::string& name, double flops) {
  DeviceType d;
  d.name = name;
  d.peak_bf16 = flops;
  d.link_fraction = 1;
  d.compute_units = 100;
  return d;
}

NodeType node(const std::string& device, int64_t count, int64_t devices) {
  NodeType n;
  n.name = device + "-node", n.device = device;
  n.count = count, n.devices = devices;
  n.link = "nvswitch";
  n.link_bandwidth = 100e9, n.pcie_bandwidth = 20e9;
  n.nics = devices, n.nic_bandwidth = 10e9;
  return n;
}

ClusterSpec cluster(int64_t nodes, int64_t devices) {
  ClusterSpec c;
  c.name = "test";
  c.devices = {device("unit", 1e14)};
  c.nodes = {node("unit", nodes, devices)};
  return c;
}

Layout layout(int64_t tp, int64_t dp, int64_t pp) {
  Layout l;
  l.tp = tp, l.dp = dp, l.pp = pp;
  return l;
}

// A training's proportions: tensor-parallel groups move most, pipelines least.
constexpr StepBytes kUsual{.tp = 100e9, .shard = 10e9, .replica = 10e9, .pp = 1e9};

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

void check_whole(const RankPlacement& p, const Layout& l) {
  CHECK(static_cast<int64_t>(p.device_of.size()) == l.ranks());
  std::set<int64_t> devices(p.device_of.begin(), p.device_of.end());
  CHECK(devices.size() == p.device_of.size());
  CHECK(*devices.begin() >= 0);
  CHECK(*devices.rbegin() < static_cast<int64_t>(p.places.size()));
  // On every node lower ranks have lower devices.
  for (int64_t r = 0; r < l.ranks(); ++r)
    for (int64_t s = r + 1; s < l.ranks(); ++s)
      if (p.place(r).node == p.place(s).node) CHECK(p.place(r).device < p.place(s).device);
  // No worse than what mpirun does by itself.
  CHECK_FALSE(p.naive.better_than(p.placed));
}

std::set<int64_t> nodes_of(const RankPlacement& p, const RankGroup& g) {
  std::set<int64_t> nodes;
  for (int64_t i = 0; i < g.size; ++i) nodes.insert(p.place(g.rank(i)).node);
  return nodes;
}

}  // namespace

TEST_CASE("placement: an even cluster keeps the mesh's order: tp in the node, dp next, pp outermost") {
  const ClusterSpec c = cluster(4, 8);
  const Layout l = layout(8, 2, 2);
  const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual});
  check_whole(p, l);
  for (int64_t r = 0; r < 32; ++r) CHECK(p.device_of[r] == r);
  CHECK(p.ranks_follow_nodes());
  CHECK(p.placed.split_tp == 0);
  CHECK(p.notes.empty());
  // By hand: 4 tp rings of 8 links of 2 * 7/8 * 100 GB; 16 dp rings of 2 links of 10 GB (ZeRO none: replicas); 16
  // pipelines send 1 GB.
  using enum LinkLevel;
  CHECK(p.placed.bytes[static_cast<size_t>(domain)] == doctest::Approx(4 * 8 * 1.75 * 100e9));
  CHECK(p.placed.bytes[static_cast<size_t>(leaf)] == doctest::Approx(16 * 2 * 10e9 + 16 * 1e9));
  CHECK(p.placed.bytes[static_cast<size_t>(spine)] == 0);
  CHECK(p.placed.slowest_s == doctest::Approx(1.75 + 1.0 + 0.1));
}

TEST_CASE("placement: tensor-parallel groups stay within nodes that they do not divide") {
  // Ranks in order would split every second pair over nodes of 5.
  const ClusterSpec c = cluster(4, 5);
  const Layout l = layout(2, 4, 2);
  const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual});
  check_whole(p, l);
  CHECK(p.naive.split_tp > 0);
  CHECK(p.placed.split_tp == 0);
  CHECK(p.placed.slowest_s < p.naive.slowest_s);
  for (int64_t r = 0; r < 16; r += 2) CHECK(p.place(r).node == p.place(r + 1).node);
  CHECK(p.placed.bytes[static_cast<size_t>(LinkLevel::leaf)] < p.naive.bytes[static_cast<size_t>(LinkLevel::leaf)]);
}

TEST_CASE("placement: what moves most gets the fast links, whichever direction it is") {
  const ClusterSpec c = cluster(4, 4);
  const Layout l = layout(2, 4, 2);
  const auto order = [&](StepBytes bytes) {
    const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = bytes});
    check_whole(p, l);
    return p;
  };
  // All of dp within nodes, tp across.
  const RankPlacement dp = order({.tp = 1e9, .shard = 0, .replica = 100e9, .pp = 1e9});
  for (int64_t r = 0; r < 16; ++r) {
    const MeshPlace place({.tp = 2, .dp = 4, .pp = 2}, r);
    CHECK(nodes_of(dp, place.dp_group).size() == 1);
    CHECK(nodes_of(dp, place.tp_group).size() == 2);
  }
  CHECK_FALSE(dp.ranks_follow_nodes());
  CHECK(dp.notes.size() == 1);
  const RankPlacement pp = order({.tp = 50e9, .shard = 0, .replica = 1e9, .pp = 100e9});
  for (int64_t r = 0; r < 16; ++r) {
    const MeshPlace place({.tp = 2, .dp = 4, .pp = 2}, r);
    CHECK(nodes_of(pp, place.pp_group).size() == 1);
    CHECK(nodes_of(pp, place.tp_group).size() == 1);
  }
}

TEST_CASE("placement: the best of all ways to fill two nodes of four, tried one by one") {
  ClusterSpec c = cluster(2, 4);
  const Layout l = layout(2, 2, 2);
  std::mt19937 random(5);
  for (int i = 0; i < 6; ++i) {
    std::uniform_real_distribution<double> some(1e9, 100e9);
    const StepBytes bytes{.tp = some(random), .shard = 0, .replica = some(random), .pp = some(random)};
    const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = bytes});
    // Every choice of four of eight ranks for the first node.
    double best = 1e300;
    for (unsigned mask = 0; mask < 256; ++mask) {
      if (__builtin_popcount(mask) != 4) continue;
      std::vector<int64_t> device_of(8);
      int64_t first = 0, second = 4;
      for (unsigned r = 0; r < 8; ++r) device_of[r] = mask >> r & 1 ? first++ : second++;
      best = std::min(best, placement_cost({c, p.places, l, bytes}, device_of).slowest_s);
    }
    CHECK(p.placed.slowest_s == doctest::Approx(best));
  }
}

TEST_CASE("placement: tensor-parallel pairs get bridged pairs of devices") {
  ClusterSpec c = cluster(2, 4);
  c.nodes[0].link_domain = 2;
  const Layout l = layout(2, 2, 2);
  const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual});
  for (int64_t r = 0; r < 8; r += 2) CHECK(p.place(r).domain == p.place(r + 1).domain);
  CHECK(p.placed.bytes[static_cast<size_t>(LinkLevel::node)] > 0);
  // The first device of a node is taken: pairs that ranks in order would split are kept whole.
  std::vector<NodeUse> nodes(2);
  nodes[0].occupied = 1;
  const Layout three = layout(2, 3, 1);
  const RankPlacement q = place_ranks({.layout = three, .cluster = c, .nodes = nodes, .bytes = kUsual});
  check_whole(q, three);
  CHECK(q.placed.split_tp == 0);
  CHECK(q.naive.split_tp == 1);
}

TEST_CASE("placement: around other jobs, with devices kept free, on as few leaves as may be") {
  ClusterSpec c = cluster(9, 4);
  c.network.nodes_per_leaf = 3;
  c.network.oversubscription = 4;
  std::vector<NodeUse> nodes(9);
  for (int64_t i = 0; i < 9; ++i) nodes[i].host = "h" + std::to_string(i);
  nodes[0].occupied = 4, nodes[1].occupied = 2, nodes[4].occupied = 3;
  const Layout l = layout(4, 3, 1);
  const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = nodes, .reserve = 5, .bytes = kUsual});
  check_whole(p, l);
  for (int64_t r = 0; r < l.ranks(); ++r) {
    CHECK(p.place(r).device >= nodes[p.place(r).node].occupied);
    CHECK(p.place(r).leaf == 2);  // the only leaf with three whole nodes
  }
  CHECK(p.naive.bytes[static_cast<size_t>(LinkLevel::spine)] > 0);
  CHECK(p.placed.bytes[static_cast<size_t>(LinkLevel::spine)] == 0);
  REQUIRE(p.notes.size() == 1);
  CHECK(p.notes[0].find("stay free") != std::string::npos);
  // 36 devices, 9 taken, 24 asked for, 5 kept: two too many.
  const std::string message = error_of(
      [&] { place_ranks({.layout = layout(4, 3, 2), .cluster = c, .nodes = nodes, .reserve = 5, .bytes = kUsual}); });
  CHECK(message.find("2 are missing") != std::string::npos);
  CHECK(message.find("27 of the cluster's 36 are free") != std::string::npos);
  CHECK_NOTHROW(place_ranks({.layout = layout(4, 3, 2), .cluster = c, .nodes = nodes, .reserve = 3, .bytes = kUsual}));
}

TEST_CASE("placement: device types are not mixed in a group unless there is no other way") {
  ClusterSpec c = cluster(0, 0);
  c.devices = {device("slow", 1e14), device("fast", 3e14)};
  c.nodes = {node("slow", 3, 4), node("fast", 2, 4)};
  const Layout l = layout(4, 2, 2);
  const RankPlacement p = place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual});
  check_whole(p, l);
  CHECK(p.naive.mixed_groups > 0);
  CHECK(p.placed.mixed_groups == 0);
  REQUIRE(p.stage_flops.size() == 2);
  const auto [least, most] = std::minmax_element(p.stage_flops.begin(), p.stage_flops.end());
  CHECK(*most == doctest::Approx(3 * *least));
  REQUIRE(p.notes.size() == 1);
  CHECK(p.notes[0].find("fewer layers") != std::string::npos);
  // What fits on the fast devices alone goes there.
  const Layout small = layout(4, 2, 1);
  const RankPlacement fast = place_ranks({.layout = small, .cluster = c, .nodes = {}, .bytes = kUsual});
  for (int64_t r = 0; r < 8; ++r) CHECK(c.devices[fast.place(r).type].name == "fast");
  // Three replicas on two fast nodes and one slow: it cannot be helped, and is said.
  c.nodes[0].count = 1;
  const Layout three = layout(4, 3, 1);
  const RankPlacement q = place_ranks({.layout = three, .cluster = c, .nodes = {}, .bytes = kUsual});
  CHECK(q.placed.mixed_groups == 4);
  REQUIRE(q.notes.size() == 1);
  CHECK(q.notes[0].find("slowest sets the pace") != std::string::npos);
}

TEST_CASE("placement: shards of a node stay in it") {
  const ClusterSpec c = cluster(4, 4);
  Layout l = layout(2, 4, 2);
  l.zero = 3;
  l.zero_group = ZeroGroup::node;
  // Pipelines move most, but shards must not be cut.
  const RankPlacement p = place_ranks(
      {.layout = l, .cluster = c, .nodes = {}, .bytes = {.tp = 50e9, .shard = 1e9, .replica = 1e9, .pp = 100e9}});
  CHECK(p.placed.split_shards == 0);
  for (int64_t r = 0; r < 16; ++r) {
    const MeshPlace place({.tp = 2, .dp = 4, .pp = 2, .shard = 2}, r);
    CHECK(nodes_of(p, place.shard_group).size() == 1);
  }
}

TEST_CASE("placement: rails and oversubscribed uplinks in the cost, by hand") {
  ClusterSpec c = cluster(4, 2);
  c.network.nodes_per_leaf = 1;
  c.network.oversubscription = 3;
  const Layout l = layout(1, 4, 1);
  const std::vector<DevicePlace> places = device_places(c);
  const StepBytes bytes{.tp = 0, .shard = 0, .replica = 10e9, .pp = 0};
  const auto seconds = [&](std::vector<int64_t> device_of) {
    return placement_cost({c, places, l, bytes}, device_of).slowest_s;
  };
  const double ring = 1.5;  // 2 * 3/4 of 10 GB over a NIC
  CHECK(seconds({0, 2, 4, 6}) == doctest::Approx(3 * ring));
  CHECK(seconds({1, 2, 4, 6}) == doctest::Approx(3 * ring));
  c.network.rails = true;
  CHECK(seconds({0, 2, 4, 6}) == doctest::Approx(ring));
  CHECK(seconds({1, 2, 4, 6}) == doctest::Approx(3 * ring));
  CHECK(seconds({0, 1, 2, 3}) == doctest::Approx(ring / 2));  // two members a node have two NICs
}

TEST_CASE("placement: odd sizes: every rank has a device, and no layout is placed worse than in order") {
  for (int64_t nodes : {1, 2, 3, 5})
    for (int64_t devices : {1, 3, 5, 8})
      for (const Layout& l : {layout(1, 1, 1), layout(2, 1, 3), layout(3, 2, 1), layout(1, 7, 1), layout(5, 1, 2)}) {
        const ClusterSpec c = cluster(nodes, devices);
        if (l.ranks() > nodes * devices) {
          CHECK_THROWS_AS(place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual}), Error);
          continue;
        }
        check_whole(place_ranks({.layout = l, .cluster = c, .nodes = {}, .bytes = kUsual}), l);
      }
}

TEST_CASE("deal_layers_by_speed: as good as the best of all ways to deal") {
  CHECK(deal_layers_by_speed(8, {1, 1}) == std::vector<int64_t>{4, 4});
  CHECK(deal_layers_by_speed(8, {3, 1}) == std::vector<int64_t>{6, 2});
  CHECK(deal_layers_by_speed(3, {1000, 1, 1}) == std::vector<int64_t>{1, 1, 1});
  CHECK(error_of([] {
          deal_layers_by_speed(2, {1, 1, 1});
        }).find("2 layers for 3 pipeline stages") != std::string::npos);
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const auto stages = static_cast<size_t>(1 + random() % 4);
    const auto layers = static_cast<int64_t>(stages + random() % 12);
    std::vector<double> speeds;
    for (size_t s = 0; s < stages; ++s) speeds.push_back(0.3 + static_cast<double>(random() % 1000) / 250);
    double best = 1e300;
    std::vector<int64_t> dealt(stages, 1);
    const std::function<void(size_t, int64_t)> deal = [&](size_t s, int64_t left) {
      if (s + 1 == stages) {
        dealt[s] = left;
        double slowest = 0;
        for (size_t k = 0; k < stages; ++k) slowest = std::max(slowest, static_cast<double>(dealt[k]) / speeds[k]);
        best = std::min(best, slowest);
        return;
      }
      for (dealt[s] = 1; left - dealt[s] >= static_cast<int64_t>(stages - s - 1); ++dealt[s]) {
        const int64_t mine = dealt[s];
        deal(s + 1, left - mine);
        dealt[s] = mine;
      }
    };
    deal(0, layers);
    const std::vector<int64_t> found = deal_layers_by_speed(layers, speeds);
    double slowest = 0;
    int64_t sum = 0;
    for (size_t s = 0; s < stages; ++s) {
      slowest = std::max(slowest, static_cast<double>(found[s]) / speeds[s]);
      sum += found[s];
      CHECK(found[s] >= 1);
    }
    CHECK(sum == layers);
    CHECK(slowest == doctest::Approx(best));
  }
}

TEST_CASE("host files: as Open MPI reads them") {
  const std::vector<HostSlots> hosts =
      parse_hostfile("# two racks\nh1 slots=8 max-slots=8\n\n  h2\nh3   slots=4 # half\nh2\nh1 slots=2\n", "hosts");
  REQUIRE(hosts.size() == 3);
  CHECK(hosts[0].host == "h1");
  CHECK(hosts[0].slots == 10);
  CHECK(hosts[1].slots == 2);
  CHECK(hosts[2].slots == 4);
  CHECK(parse_hostfile("h", "x")[0].slots == -1);
  CHECK(parse_hostfile("", "x").empty());
  CHECK(error_of([] { parse_hostfile("h1\nh2 slots=many", "hosts"); }).find("hosts:2: slots") != std::string::npos);
  CHECK(error_of([] { parse_hostfile("h1 slots=4 max_slots=3", "hosts"); }).find("max_slots = 3 is less") !=
        std::string::npos);
  CHECK(error_of([] { parse_hostfile("h1\na\"b", "hosts"); }).find("hosts:2: expected a host's name") !=
        std::string::npos);
  CHECK(error_of([] { parse_hostfile("h2 8", "hosts"); }).find("expected \"h2 slots=N\"") != std::string::npos);
  CHECK(error_of([] { parse_hostfile("h2 slots=-1", "hosts"); }).find("found \"-1\"") != std::string::npos);
}

TEST_CASE("host files: names that do not fit the cluster are refused") {
  const ClusterSpec c = cluster(2, 8);
  std::vector<NodeUse> nodes = name_nodes(c, parse_hostfile("gpu-a slots=8\ngpu-b", "hosts"), "hosts");
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[1].host == "gpu-b");
  CHECK(error_of([&] { name_nodes(c, parse_hostfile("a\nb\nc", "x"), "hosts"); }).find("hosts names 3 hosts") !=
        std::string::npos);
  CHECK(error_of([&] {
          name_nodes(c, parse_hostfile("a slots=8\nb slots=4", "x"), "hosts");
        }).find("host b has 4 slots") != std::string::npos);
  occupy(nodes, c, parse_hostfile("gpu-b slots=3", "busy"), "busy");
  CHECK(nodes[0].occupied == 0);
  CHECK(nodes[1].occupied == 3);
  occupy(nodes, c, parse_hostfile("gpu-a", "busy"), "busy");
  CHECK(nodes[0].occupied == 8);
  CHECK(error_of([&] { occupy(nodes, c, parse_hostfile("gpu-d", "busy"), "busy"); }).find("did you mean gpu-") !=
        std::string::npos);
  CHECK(error_of([&] { occupy(nodes, c, parse_hostfile("gpu-a slots=9", "busy"), "busy"); }).find("it has 8 devices") !=
        std::string::npos);
}
