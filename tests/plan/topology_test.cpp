#include "libcore/plan/price/topology.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <set>

#include "libcore/base/error.h"

using namespace rw;

namespace {

constexpr double kMi = 1 << 20;

// Round numbers: links 100 GB/s and 2 us, NICs 10 GB/s (one a device) and 5 us, all of it reached.
ClusterSpec cluster(int64_t nodes, int64_t devices) {
  ClusterSpec c;
  c.name = "test";
  DeviceType d;
  d.name = "unit";
  d.link_fraction = 1;
  c.devices = {d};
  NodeType n;
  n.name = "box", n.device = "unit";
  n.count = nodes, n.devices = devices;
  n.link = "nvswitch";
  n.link_bandwidth = 100e9, n.link_latency = 2e-6;
  n.nics = devices, n.nic_bandwidth = 10e9, n.nic_latency = 5e-6;
  c.nodes = {n};
  c.network.hop_latency = 1e-6;
  return c;
}

Topology::Seconds time_of(const ClusterSpec& c, CommKind kind, RankGroup group, double bytes) {
  return Topology(c).seconds({kind, group, bytes});
}

}  // namespace

TEST_CASE("closed forms: what running the step lists over alike wires gives") {
  for (const int p : {2, 3, 5, 7, 8, 13, 16, 31, 64}) {
    for (const int64_t n : {int64_t{8} * p, int64_t{4096} * p}) {
      const WireCost wire{3e-6, 1e-9};
      const double bytes = 4.0 * static_cast<double>(n);
      CAPTURE(p);
      CAPTURE(n);
      for (const CollectiveAlgorithm a : {CollectiveAlgorithm::ring, CollectiveAlgorithm::doubling}) {
        std::vector<StepList> steps;
        for (int r = 0; r < p; ++r)
          steps.push_back(all_reduce_steps({.algorithm = a, .ranks = p, .n = n, .segment = n}, r));
        const double closed =
            a == CollectiveAlgorithm::ring ? ring_all_reduce_s(bytes, p, wire) : doubling_all_reduce_s(bytes, p, wire);
        CHECK(closed == doctest::Approx(price_steps(steps, 4, wire)).epsilon(0.1));
      }
      const std::vector<int64_t> cuts = even_cuts(n, p);
      std::vector<StepList> scatter, gather;
      for (int r = 0; r < p; ++r) {
        scatter.push_back(reduce_scatter_steps({.cuts = cuts, .segment = n}, r));
        gather.push_back(all_gather_steps({.cuts = cuts, .segment = n}, r));
      }
      CHECK(ring_parts_s(bytes, p, wire) == doctest::Approx(price_steps(scatter, 4, wire)).epsilon(0.1));
      CHECK(ring_parts_s(bytes, p, wire) == doctest::Approx(price_steps(gather, 4, wire)).epsilon(0.1));
    }
  }
}

TEST_CASE("closed forms: a pipelined tree takes about what the double tree's lists take with their best segments") {
  for (const int p : {8, 16, 64}) {
    const int64_t n = 1 << 20;
    const WireCost wire{3e-6, 1e-9};
    double best = 1e9;
    for (int64_t segment = 1 << 10; segment <= n; segment *= 2) {
      std::vector<StepList> steps;
      for (int r = 0; r < p; ++r)
        steps.push_back(
            all_reduce_steps({.algorithm = CollectiveAlgorithm::tree, .ranks = p, .n = n, .segment = segment}, r));
      best = std::min(best, price_steps(steps, 4, wire));
    }
    const double closed =
        pipelined_s(2 * static_cast<double>(log2_ceil(p)) * wire.alpha_s, 2 * 4.0 * n * wire.s_per_byte);
    CAPTURE(p);
    CHECK(closed == doctest::Approx(best).epsilon(0.2));
  }
}

TEST_CASE("topology: nothing to do takes no time") {
  const ClusterSpec c = cluster(2, 8);
  CHECK(time_of(c, CommKind::all_reduce, {0, 1, 1}, 1e9).s == 0);
  CHECK(time_of(c, CommKind::all_reduce, {0, 1, 16}, 0).s == 0);
  CHECK(Topology(c).crossing({CommKind::all_reduce, {0, 1, 1}, 1e9}).bytes == 0);
}

TEST_CASE("topology: numbers by hand") {
  SUBCASE("a large all_reduce within a node: 14 rounds of 2 x 2 us, 2 x 7/8 of the bytes at 100 GB/s") {
    const auto t = time_of(cluster(2, 8), CommKind::all_reduce, {8, 1, 8}, 8e9);
    CHECK(t.s == doctest::Approx(14 * 4e-6 + 1.75 * 8e9 / 100e9));
    CHECK(t.inter_s == 0);
    CHECK_FALSE(t.crosses_nodes);
  }
  SUBCASE("a tiny one: three rounds of doubling") {
    CHECK(time_of(cluster(2, 8), CommKind::all_reduce, {0, 1, 8}, 1).s == doctest::Approx(6e-6).epsilon(0.001));
  }
  SUBCASE("eight rings side by side over four nodes, a NIC each: 3 rounds of 2 x 5 us, 3/4 at 10 GB/s") {
    const auto t = time_of(cluster(4, 8), CommKind::all_gather, {3, 8, 4}, 4e9);
    CHECK(t.s == doctest::Approx(3 * 10e-6 + 0.75 * 4e9 / 10e9));
    CHECK(t.intra_s == 0);
  }
  SUBCASE("one ring of 32 has all eight NICs: 4 of 32 links are slow, 31/32 at 80 GB/s") {
    const auto t = time_of(cluster(4, 8), CommKind::reduce_scatter, {0, 1, 32}, 32e9);
    CHECK(t.s == doctest::Approx(31 * (28 * 4e-6 + 4 * 10e-6) / 32 + 31.0 / 32 * 32e9 / 80e9));
  }
  SUBCASE("two levels where the nodes' links are slow to cross: 8 within, then a member's share between") {
    ClusterSpec c = cluster(64, 8);
    c.nodes[0].link_bandwidth = 1000e9;
    c.nodes[0].link_latency = c.nodes[0].nic_latency = 1e-4;
    // One ring: 1022 rounds. Two levels: 14 + 126.
    const auto t = time_of(c, CommKind::all_reduce, {0, 1, 512}, 64e9);
    CHECK(t.s <= doctest::Approx(14 * 2e-4 + 1.75 * 64e9 / 1000e9 + 126 * 2e-4 + 2 * 63.0 / 64 * 8e9 / 10e9));
    CHECK(t.inter_s >= 2 * 63.0 / 64 * 8e9 / 10e9);
  }
  SUBCASE("messages: a neighbour in the node, one on the next, eight at once over eight NICs and over two") {
    ClusterSpec c = cluster(2, 8);
    CHECK(time_of(c, CommKind::send, {0, 1, 2}, 1e6).s == doctest::Approx(2e-6 + 1e6 / 100e9));
    CHECK(time_of(c, CommKind::send, {0, 8, 2}, 1e6).s == doctest::Approx(5e-6 + 1e6 / 10e9));
    c.nodes[0].nics = 2;
    CHECK(time_of(c, CommKind::send, {0, 8, 2}, 1e6).s == doctest::Approx(5e-6 + 4 * 1e6 / 10e9));
    // Of stride 1 one rank of a node sends out; it has a NIC.
    CHECK(time_of(c, CommKind::send, {7, 1, 2}, 1e6).s == doctest::Approx(5e-6 + 1e6 / 10e9));
    // Of a group of many the slowest pair counts.
    CHECK(time_of(c, CommKind::send, {0, 1, 16}, 1e6).s == doctest::Approx(5e-6 + 1e6 / 10e9));
  }
}

TEST_CASE("topology: odd sizes: 3 nodes of 5, groups of 7") {
  const ClusterSpec c = cluster(3, 5);
  // Ranks 0-6: five on a node, two on the next, whose two NICs are the neck; 2 of 7 links lead out.
  const auto t = time_of(c, CommKind::all_gather, {0, 1, 7}, 7e9);
  CHECK(t.s == doctest::Approx(6 * (5 * 4e-6 + 2 * 10e-6) / 7 + 6.0 / 7 * 7e9 / 20e9));
  // Ranks 1, 3, ..., 13: two, three, two on three nodes.
  const auto u = time_of(c, CommKind::all_gather, {1, 2, 7}, 7e9);
  CHECK(u.s == doctest::Approx(6 * (4 * 4e-6 + 3 * 10e-6) / 7 + 6.0 / 7 * 7e9 / 20e9));
  CHECK(Topology(c).node_of(14) == 2);
}

TEST_CASE("topology: where members lie, against counting them one by one") {
  ClusterSpec c = cluster(4, 3);
  NodeType big = c.nodes[0];
  big.count = 3, big.devices = 8, big.nics = 8;
  NodeType five = c.nodes[0];
  five.count = 2, five.devices = 5, five.nics = 5;
  c.nodes.push_back(big);
  c.nodes.push_back(five);
  const Topology topology(c);
  REQUIRE(topology.ranks() == 12 + 24 + 10);
  std::vector<int64_t> node;
  for (int64_t n = 0; n < 9; ++n) node.insert(node.end(), n < 4 ? 3 : n < 7 ? 8 : 5, n);
  for (int64_t r = 0; r < topology.ranks(); ++r) REQUIRE(topology.node_of(r) == node[r]);
  CHECK_THROWS_AS(topology.ranks_per_node(), Error);
  int64_t cases = 0;
  for (int64_t start : {0, 1, 2, 7, 11, 13, 20, 36})
    for (int64_t stride : {1, 2, 3, 4, 5, 7, 8, 9, 16})
      for (int64_t size = 2; size < 24; ++size) {
        const RankGroup g{start, stride, size};
        if (g.rank(size - 1) >= topology.ranks()) continue;
        std::set<int64_t> nodes;
        for (int64_t i = 0; i < size; ++i) nodes.insert(node[g.rank(i)]);
        const double groups = std::floor(46.0 / static_cast<double>(size));
        const double edge = static_cast<double>(size - 1) / static_cast<double>(size) * 1e6;
        const auto found = topology.crossing({CommKind::all_gather, g, 1e6});
        CAPTURE(start);
        CAPTURE(stride);
        CAPTURE(size);
        CHECK(found.bytes ==
              doctest::Approx(nodes.size() == 1 ? 0 : groups * static_cast<double>(nodes.size()) * edge));
        CHECK(topology.seconds({CommKind::all_gather, g, 1e6}).crosses_nodes == (nodes.size() > 1));
        ++cases;
      }
  CHECK(cases > 300);
}

TEST_CASE("topology: more bandwidth is never slower, more bytes never faster, latency never helps") {
  for (const CommKind kind :
       {CommKind::all_reduce, CommKind::reduce_scatter, CommKind::all_gather, CommKind::broadcast, CommKind::send})
    for (const RankGroup g : {RankGroup{0, 1, 4}, RankGroup{0, 1, 8}, RankGroup{0, 1, 64}, RankGroup{2, 4, 16},
                              RankGroup{5, 8, 8}, RankGroup{0, 16, 4}, RankGroup{3, 3, 20}, RankGroup{0, 5, 12}})
      for (const std::string link : {"nvswitch", "pcie"}) {
        ClusterSpec c = cluster(8, 8);
        c.nodes[0].link = link;
        c.nodes[0].nics = 4;
        c.network.nodes_per_leaf = 2;
        c.network.oversubscription = 3;
        double before = 0;
        for (double bytes = 1; bytes < 1e11; bytes *= 3.7) {
          CAPTURE(comm_kind_name(kind));
          CAPTURE(g.start);
          CAPTURE(g.stride);
          CAPTURE(g.size);
          CAPTURE(bytes);
          const auto t = time_of(c, kind, g, bytes);
          CHECK(t.s >= before);
          CHECK(t.s == doctest::Approx(t.intra_s + t.inter_s));
          CHECK(t.intra_s >= 0);
          CHECK(t.inter_s >= 0);
          before = t.s;
          const auto faster = [&](auto change) {
            ClusterSpec d = c;
            change(d);
            return time_of(d, kind, g, bytes).s <= t.s * (1 + 1e-12);
          };
          CHECK(faster([](ClusterSpec& d) { d.nodes[0].link_bandwidth *= 1.7; }));
          CHECK(faster([](ClusterSpec& d) { d.nodes[0].nic_bandwidth *= 1.7; }));
          CHECK(faster([](ClusterSpec& d) { d.nodes[0].nics *= 2; }));
          CHECK(faster([](ClusterSpec& d) { d.nodes[0].link_latency /= 2; }));
          CHECK(faster([](ClusterSpec& d) { d.nodes[0].nic_latency /= 2; }));
          CHECK(faster([](ClusterSpec& d) { d.network.oversubscription = 1; }));
          CHECK(faster([](ClusterSpec& d) { d.network.hop_latency = 0; }));
        }
      }
}

TEST_CASE("topology: a group within a node does not pay for the network") {
  ClusterSpec c = cluster(4, 8);
  const double s = time_of(c, CommKind::all_reduce, {8, 2, 4}, 1e9).s;
  c.nodes[0].nic_bandwidth /= 1000;
  c.nodes[0].nic_latency = 1;
  CHECK(time_of(c, CommKind::all_reduce, {8, 2, 4}, 1e9).s == s);
  CHECK(time_of(c, CommKind::all_reduce, {8, 8, 3}, 1e9).s > 1000 * s);
}

TEST_CASE("topology: ring bytes: as many ranks as one likes move a buffer at most twice") {
  // Without latencies 2(p-1)/p of the bytes go through every link.
  for (int64_t p = 2; p <= 64; ++p) {
    ClusterSpec c = cluster(p, 1);
    c.nodes[0].nic_latency = 0;
    const double rings = 2 * static_cast<double>(p - 1) / static_cast<double>(p);
    CHECK(time_of(c, CommKind::all_reduce, {0, 1, p}, 10e9).s == doctest::Approx(rings));
    CHECK(time_of(c, CommKind::all_gather, {0, 1, p}, 10e9).s == doctest::Approx(rings / 2));
    CHECK(Topology(c).crossing({CommKind::all_reduce, {0, 1, p}, 10e9}).busiest_nic == doctest::Approx(10e9 * rings));
  }
}

TEST_CASE("topology: oversubscribed uplinks, leaves and rails") {
  ClusterSpec c = cluster(16, 8);
  c.nodes[0].nic_latency = 0;
  c.network.hop_latency = 0;
  c.network.nodes_per_leaf = 4;
  const RankGroup apart{0, 32, 4}, near{0, 8, 4}, all{0, 8, 16};
  const auto inter = [&](RankGroup g, double oversubscription, CommKind kind = CommKind::all_reduce) {
    ClusterSpec d = c;
    d.network.oversubscription = oversubscription;
    return time_of(d, kind, g, 1e9).inter_s;
  };
  // One node a leaf: everything goes up.
  CHECK(inter(apart, 2) == doctest::Approx(2 * inter(apart, 1)));
  CHECK(inter(apart, 4) == doctest::Approx(4 * inter(apart, 1)));
  CHECK(inter(apart, 6, CommKind::send) == doctest::Approx(6 * inter(apart, 1, CommKind::send)));
  CHECK(inter(near, 4) == inter(near, 1));
  // A ring through the four nodes of a leaf goes up once.
  CHECK(inter(all, 4) == doctest::Approx(inter(all, 1)));
  CHECK(inter(all, 8) == doctest::Approx(2 * inter(all, 1)));
  // A quarter of the nodes send a message up.
  CHECK(inter({0, 8, 16}, 8, CommKind::send) == doctest::Approx(2 * inter({0, 8, 16}, 1, CommKind::send)));
  c.network.rails = true;
  CHECK(inter(apart, 4) == inter(apart, 1));
  CHECK(inter({0, 36, 3}, 4) > 3 * inter({0, 36, 3}, 1));  // not the same place in the node
  // A hop up costs its latency.
  c.network.rails = false;
  c.network.hop_latency = 1e-3;
  CHECK(time_of(c, CommKind::all_gather, apart, 1).s == doctest::Approx(3 * 2 * 1e-3).epsilon(1e-3));
  CHECK(time_of(c, CommKind::all_gather, near, 1).s < 1e-6);
}

TEST_CASE("topology: what groups share") {
  ClusterSpec c = cluster(4, 8);
  c.nodes[0].nic_latency = c.nodes[0].link_latency = 0;
  c.nodes[0].link_bandwidth = 1e15;
  // Eight rings of a member a node, four of two, one of eight: the NICs are shared alike.
  const double eight = time_of(c, CommKind::all_gather, {0, 8, 4}, 4e9).s;
  const double four = time_of(c, CommKind::all_gather, {0, 4, 8}, 8e9).s;
  const double one = time_of(c, CommKind::all_gather, {0, 1, 32}, 32e9).s;
  CHECK(eight == doctest::Approx(3e9 / 10e9));
  CHECK(four == doctest::Approx(7e9 / 20e9));
  CHECK(one == doctest::Approx(31e9 / 80e9));
  // Half of the NICs: half of the speed.
  c.nodes[0].nics = 4;
  CHECK(time_of(c, CommKind::all_gather, {0, 8, 4}, 4e9).s == doctest::Approx(2 * eight));

  SUBCASE("a switch does not contend, PCIe does") {
    c.nodes[0].link_bandwidth = 100e9;
    const RankGroup halves{0, 4, 2}, block{0, 1, 4};
    const double switched = time_of(c, CommKind::all_gather, halves, 1e9).s;
    const double switched_block = time_of(c, CommKind::all_gather, block, 1e9).s;
    c.nodes[0].link = "pcie";
    CHECK(time_of(c, CommKind::all_gather, halves, 1e9).s == doctest::Approx(4 * switched));
    CHECK(time_of(c, CommKind::all_gather, block, 1e9).s == doctest::Approx(switched_block));
  }
  SUBCASE("beyond a link domain it is PCIe") {
    c.nodes[0].link_bandwidth = 100e9;
    c.nodes[0].pcie_bandwidth = 20e9;
    c.nodes[0].link_domain = 2;
    CHECK(time_of(c, CommKind::all_gather, {0, 1, 2}, 1e9).s == doctest::Approx(0.5e9 / 100e9));
    CHECK(time_of(c, CommKind::all_gather, {1, 1, 2}, 1e9).s == doctest::Approx(0.5e9 / 20e9));
    CHECK(time_of(c, CommKind::all_gather, {0, 1, 8}, 1e9).s == doctest::Approx(0.875e9 / 20e9));
  }
}

TEST_CASE("topology: the slowest node type of a group counts") {
  ClusterSpec c = cluster(2, 8);
  NodeType slow = c.nodes[0];
  slow.nic_bandwidth /= 4, slow.link_bandwidth /= 5;
  c.nodes.push_back(slow);
  const double fast_net = time_of(c, CommKind::all_gather, {0, 8, 2}, 8e9).s;
  CHECK(time_of(c, CommKind::all_gather, {0, 16, 2}, 8e9).s == doctest::Approx(4 * fast_net).epsilon(0.01));
  CHECK(time_of(c, CommKind::all_gather, {16, 1, 8}, 8e9).s > 4 * time_of(c, CommKind::all_gather, {0, 1, 8}, 8e9).s);
}

// NCCL 2.29 on eight GPUs of a node: bus bandwidth in GB/s at 1, 16, 64, 256 and 512 MiB, and microseconds of 4 KiB
// (ai-dynamo/aiconfigurator, systems/data/*/comm/nccl).
struct Published {
  const char* cluster;
  CommKind kind;
  double us, bus[5];
};
constexpr double kPublishedMi[5] = {1, 16, 64, 256, 512};
constexpr Published kPublished[] = {{"a100-80", CommKind::all_reduce, 21.4, {47, 136, 197, 215, 222}},
                                    {"a100-80", CommKind::all_gather, 14.7, {34, 109, 167, 193, 205}},
                                    {"a100-80", CommKind::reduce_scatter, 14.7, {39, 119, 179, 204, 213}},
                                    {"h100-sxm", CommKind::all_reduce, 15.9, {72, 240, 362, 430, 445}},
                                    {"h100-sxm", CommKind::all_gather, 10.6, {54, 216, 281, 321, 336}},
                                    {"h100-sxm", CommKind::reduce_scatter, 10.5, {63, 207, 292, 326, 335}},
                                    {"h200", CommKind::all_reduce, 15.8, {66, 243, 366, 445, 461}},
                                    {"h200", CommKind::all_gather, 11.4, {49, 221, 287, 326, 338}},
                                    {"h200", CommKind::reduce_scatter, 11.3, {63, 214, 291, 328, 337}},
                                    {"b200", CommKind::all_reduce, 25.5, {61, 298, 421, 655, 702}},
                                    {"b200", CommKind::all_gather, 17.8, {49, 144, 429, 598, 617}},
                                    {"b200", CommKind::reduce_scatter, 16.1, {50, 153, 424, 594, 613}}};

ClusterSpec shipped(const std::string& name) {
  const char* source = std::getenv("RANKWRIGHT_SOURCE");
  REQUIRE(source != nullptr);
  return load_cluster_spec(std::string(source) + "/configs/clusters/" + name + ".toml");
}

TEST_CASE("topology: the shipped clusters meet NCCL's published points on eight GPUs") {
  for (const Published& p : kPublished) {
    const Topology topology(shipped(p.cluster));
    CAPTURE(p.cluster);
    CAPTURE(comm_kind_name(p.kind));
    const double factor = p.kind == CommKind::all_reduce ? 1.75 : 0.875;
    CHECK(topology.seconds({p.kind, {0, 1, 8}, 4096}).s == doctest::Approx(p.us * 1e-6).epsilon(0.1));
    for (int i = 0; i < 5; ++i) {
      const double bytes = kPublishedMi[i] * kMi;
      const auto t = topology.seconds({p.kind, {0, 1, 8}, bytes});
      CHECK(factor * bytes / t.s == doctest::Approx(p.bus[i] * 1e9).epsilon(0.12));
      CHECK(t.provenance == Provenance::table);
    }
  }
}

TEST_CASE("topology: without fits the formula comes near them where a ring is what runs") {
  // all_reduce of Hopper's large sizes is done in the switch and beats every ring; Blackwell's lines start later.
  for (const Published& p : kPublished) {
    const std::string name = p.cluster;
    if (name == "b200" || p.kind == CommKind::all_reduce) continue;
    ClusterSpec c = shipped(name);
    c.nodes[0].collectives.clear();
    const Topology topology(c);
    CAPTURE(name);
    CHECK(topology.seconds({p.kind, {0, 1, 8}, 4096}).s == doctest::Approx(p.us * 1e-6).epsilon(0.3));
    for (int i = 2; i < 5; ++i) {
      const double bytes = kPublishedMi[i] * kMi;
      CHECK(0.875 * bytes / topology.seconds({p.kind, {0, 1, 8}, bytes}).s ==
            doctest::Approx(p.bus[i] * 1e9).epsilon(0.3));
    }
  }
}

TEST_CASE("topology: fits for other numbers of ranks and for what they do not name") {
  ClusterSpec c = cluster(4, 8);
  // Lines that do not meet where the second starts.
  c.nodes[0].collectives = {
      {.kind = "all_reduce", .ranks = 8, .segments = {{0, 16.6e-6, 216e9 / 1.75}, {16 << 20, 60.6e-6, 452e9 / 1.75}}},
      {.kind = "reduce_scatter",
       .ranks = 8,
       .segments = {{0, 11.2e-6, 195e9 / 0.875}, {8 << 20, 23.8e-6, 339e9 / 0.875}}}};
  // A gather moves what a scatter moves. Four ranks: 3/4 instead of 7/8 of the bytes, in fewer rounds.
  CHECK(time_of(c, CommKind::all_gather, {0, 1, 8}, 1e9).s == time_of(c, CommKind::reduce_scatter, {0, 1, 8}, 1e9).s);
  CHECK(time_of(c, CommKind::all_gather, {0, 1, 4}, 1e9).s ==
        doctest::Approx(0.75 * 1e9 / 339e9 + 23.8e-6 * (11 + 3) / (11 + 7)));
  // More bytes never take less.
  double before = 0;
  for (double n = 1 * kMi; n < 32 * kMi; n *= 1.01) {
    const double s = time_of(c, CommKind::all_reduce, {0, 1, 8}, n).s;
    CHECK(s >= before);
    before = s;
  }
}

TEST_CASE("topology: measured collectives of the network take the formula's place") {
  ClusterSpec c = cluster(4, 2);
  c.nodes[0].nics = 1;
  c.network.collectives = {{.kind = "all_reduce", .ranks = 4, .segments = {{0, 1e-3, 2e9}}, .provenance = "measured"}};
  const auto t = time_of(c, CommKind::all_reduce, {0, 2, 4}, 2e9);
  CHECK(t.s == doctest::Approx(1e-3 + 2.0));  // two devices of a node share its NIC
  CHECK(t.provenance == Provenance::measured);
  // Both devices in one group: each takes half of the data.
  const auto u = time_of(c, CommKind::all_reduce, {0, 1, 8}, 2e9);
  CHECK(u.inter_s == doctest::Approx(1e-3 + 1.0));
  CHECK(u.intra_s > 2 * 0.5 * 2e9 / 100e9);
  CHECK(time_of(c, CommKind::all_gather, {0, 2, 4}, 2e9).provenance == Provenance::roofline);
}

// SimAI (aliyun/SimAI, astra-sim-alibabacloud, nic_ratio.csv): what rings of all_gather and reduce_scatter over nodes
// of 8 GPUs and 8 NICs reach of the NICs' bandwidth, by nodes and bytes.
TEST_CASE("topology: efficiency falls with nodes and grows with bytes as published") {
  const struct {
    int64_t nodes;
    double mi[5], share[5];
  } rows[] = {{2, {16, 64, 256, 1024, 16384}, {.32, .50, .85, .92, .96}},
              {4, {16, 64, 256, 1024, 16384}, {.24, .53, .77, .93, .96}},
              {8, {16, 64, 256, 1024, 16384}, {.13, .39, .69, .90, .96}},
              {16, {16, 64, 256, 1024, 16384}, {.05, .21, .57, .76, .96}},
              {128, {16, 64, 256, 1024, 16384}, {.009, .04, .10, .31, .92}}};
  for (const auto& row : rows)
    for (int i = 0; i < 5; ++i) {
      ClusterSpec c = cluster(row.nodes, 8);
      c.devices[0].link_fraction = 0.96;
      c.nodes[0].link_bandwidth = 450e9;
      c.nodes[0].nic_bandwidth = 50e9;
      const int64_t p = row.nodes * 8;
      const double bytes = row.mi[i] * kMi;
      const double s = time_of(c, CommKind::all_gather, {0, 1, p}, bytes).s;
      const double share = static_cast<double>(p - 1) / static_cast<double>(p) * bytes / s / 400e9;
      CAPTURE(row.nodes);
      CAPTURE(row.mi[i]);
      CHECK(share == doctest::Approx(row.share[i]).epsilon(0.3));
    }
}

TEST_CASE("topology: what cannot be is refused") {
  const auto message = [](auto change) -> std::string {
    ClusterSpec c = cluster(2, 8);
    change(c);
    try {
      Topology t(c);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  CHECK(message([](ClusterSpec&) {}).empty());
  CHECK(message([](ClusterSpec& c) { c.nodes[0].nic_bandwidth = 0; }).find("nic-bandwidth 0") != std::string::npos);
  CHECK(message([](ClusterSpec& c) { c.nodes[0].link_bandwidth = 0; }).find("link-bandwidth is 0") !=
        std::string::npos);
  CHECK(message([](ClusterSpec& c) { c.nodes.clear(); }).find("no [[node]]") != std::string::npos);
  CHECK(message([](ClusterSpec& c) {
          c.network.collectives = {{.kind = "reduce", .ranks = 2, .segments = {{0, 0, 1}}}};
        }).find("reduce is not known") != std::string::npos);
}
