#include "libcore/plan/place/place_format.h"

#include <doctest/doctest.h>

#include <functional>

#include "libcore/base/error.h"

using namespace rw;

namespace {

ClusterSpec gpu_cluster(int64_t nodes, int64_t devices) {
  ClusterSpec c;
  c.name = "test";
  DeviceType d;
  d.name = "gpu";
  d.peak_bf16 = 1e15;
  d.link_fraction = 1;
  d.compute_units = 132;
  c.devices = {d};
  NodeType n;
  n.name = "box", n.device = "gpu";
  n.count = nodes, n.devices = devices;
  n.link = "nvswitch";
  n.link_bandwidth = 450e9, n.pcie_bandwidth = 64e9;
  n.nics = devices, n.nic_bandwidth = 50e9;
  c.nodes = {n};
  return c;
}

struct Placed {
  ClusterSpec cluster;
  Layout layout;
  std::vector<NodeUse> nodes;
  StepBytes bytes{.tp = 100e9, .shard = 0, .replica = 10e9, .pp = 1e9};
  PlaceNames names = {};
  std::string text(const std::string& format) const {
    const RankPlacement p = place_ranks({.layout = layout, .cluster = cluster, .nodes = nodes, .bytes = bytes});
    return place_file({p, layout, cluster, nodes, bytes, names}, format);
  }
  std::string error(const std::string& format) const {
    try {
      text(format);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
};

Placed placed(int64_t nodes, int64_t devices, int64_t tp, int64_t dp, int64_t pp) {
  Placed p{.cluster = gpu_cluster(nodes, devices), .layout = {}, .nodes = {}};
  p.layout.tp = tp, p.layout.dp = dp, p.layout.pp = pp;
  for (int64_t i = 0; i < nodes; ++i) p.nodes.push_back({.host = "h" + std::to_string(i)});
  return p;
}

// Ranks 0, 2 on one node and 1, 3 on the other: pipelines move most.
Placed crossed() {
  Placed p = placed(2, 2, 1, 2, 2);
  p.bytes = {.tp = 0, .shard = 0, .replica = 1e9, .pp = 100e9};
  return p;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t i = text.find(what); i != std::string::npos; i = text.find(what, i + 1)) ++n;
  return n;
}
bool holds(const std::string& text, const std::string& what) { return count(text, what) > 0; }

}  // namespace

TEST_CASE("rankfile: a line a rank, ascending, sockets and cores in proportion") {
  Placed p = placed(2, 2, 2, 2, 1);
  p.names.cores = 8;
  CHECK(p.text("rankfile") ==
        "rank 0=h0 slot=0:0-3\nrank 1=h0 slot=0:4-7\nrank 2=h1 slot=0:0-3\nrank 3=h1 slot=0:4-7\n");
  p.names.sockets = 2;
  CHECK(p.text("rankfile") ==
        "rank 0=h0 slot=0:0-3\nrank 1=h0 slot=1:0-3\nrank 2=h1 slot=0:0-3\nrank 3=h1 slot=1:0-3\n");
  p.names.cores = 2;
  CHECK(holds(p.text("rankfile"), "rank 1=h0 slot=1:0\n"));
  p.names.cores = 0;
  CHECK(holds(p.text("rankfile"), "rank 1=h0 slot=1:*\n"));
  p.names.cores = 3;
  CHECK(holds(p.error("rankfile"), "--node-cores 3"));
  CHECK(crossed().text("rankfile") ==
        "rank 0=h0 slot=0:*\nrank 1=h1 slot=0:*\nrank 2=h0 slot=0:*\nrank 3=h1 slot=0:*\n");
}

TEST_CASE("rankfile: odd numbers: five devices on two sockets of three cores, one device on two sockets") {
  Placed p = placed(1, 5, 5, 1, 1);
  p.names.cores = 6, p.names.sockets = 2;
  CHECK(p.text("rankfile") ==
        "rank 0=h0 slot=0:0\nrank 1=h0 slot=0:1\nrank 2=h0 slot=0:2\nrank 3=h0 slot=1:0\nrank 4=h0 slot=1:1-2\n");
  Placed one = placed(2, 1, 1, 2, 1);
  one.names.cores = 6, one.names.sockets = 2;
  CHECK(one.text("rankfile") == "rank 0=h0 slot=0:0-2;1:0-2\nrank 1=h1 slot=0:0-2;1:0-2\n");
}

TEST_CASE("hostfile: the nodes in use, where ranks follow them") {
  Placed p = placed(3, 4, 2, 2, 1);
  p.nodes[0].occupied = 4;
  CHECK(p.text("hostfile") == "h1 slots=4\n");
  CHECK(holds(crossed().error("hostfile"), "use --format rankfile"));
  p.nodes.clear();
  CHECK(holds(p.error("hostfile"), "give --hosts"));
  CHECK(holds(p.error("rankfile"), "give --hosts"));
}

TEST_CASE("slurm: block where ranks follow the nodes, a list of hosts where they do not") {
  Placed p = placed(2, 4, 4, 2, 1);
  p.cluster.network.nodes_per_leaf = 2;
  const std::string block = p.text("slurm");
  for (const char* line :
       {"#SBATCH --nodes=2\n", "#SBATCH --ntasks=8\n", "#SBATCH --ntasks-per-node=4\n", "#SBATCH --nodelist=h0,h1\n",
        "#SBATCH --switches=1\n", "#SBATCH --distribution=block:block\n", "srun --distribution=block:block \"$@\"\n"})
    CHECK(holds(block, line));
  CHECK_FALSE(holds(block, "SLURM_HOSTFILE"));
  p.nodes.clear();
  CHECK_FALSE(holds(p.text("slurm"), "nodelist"));
  const std::string list = crossed().text("slurm");
  CHECK(holds(list, "<<'HOSTS'\nh0\nh1\nh0\nh1\nHOSTS\nsrun --distribution=arbitrary \"$@\"\n"));
  CHECK(holds(list, "export SLURM_HOSTFILE="));
}

TEST_CASE("k8s: a pod a node, on one leaf, on the named hosts; ranks by pod") {
  Placed p = placed(2, 4, 4, 2, 1);
  p.cluster.network.nodes_per_leaf = 2;
  p.names.job = "llm";
  const std::string text = p.text("k8s");
  for (const char* line :
       {"completionMode: Indexed\n", "completions: 2\n", "parallelism: 2\n", "clusterIP: None\n", "subdomain: llm\n",
        "topologyKey: kubernetes.io/hostname\n", "topologyKey: network.topology.nvidia.com/leaf\n", "nvidia.com/gpu: 4",
        "- \"h0\"\n", "ranks-of-pod-1: \"4 5 6 7\"\n", "rank 5=llm-1.llm slot=0:*\n"})
    CHECK(holds(text, line));
  CHECK(count(text, "\n---\n") == 2);
  CHECK(count(text, "requiredDuringScheduling") == 3);
  // Several leaves: near each other if possible. No leaves: nothing to say.
  p.cluster.network.nodes_per_leaf = 1;
  CHECK(holds(p.text("k8s"), "preferredDuringScheduling"));
  p.cluster.network.nodes_per_leaf = 0;
  CHECK_FALSE(holds(p.text("k8s"), "network.topology"));
  p.nodes[0].occupied = 1;
  p.layout.tp = 7, p.layout.dp = 1;
  CHECK(holds(p.error("k8s"), "has 3 ranks on one node and 4 on another"));
}

TEST_CASE("nccl-topo: CPUs, switches, GPUs with links, NICs at their speed") {
  Placed p = placed(2, 4, 4, 2, 1);
  p.cluster.nodes[0].nics = 2;
  p.names.sockets = 2;
  std::string text = p.text("nccl-topo");
  CHECK(text.find("<system version=\"1\">") == 0);
  CHECK(count(text, "<cpu numaid=") == 2);
  CHECK(count(text, "class=\"0x060400\"") == 4);
  CHECK(count(text, "<gpu dev=") == 4);
  CHECK(count(text, "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\"") == 4);  // 450 GB/s of 25 each, as an H100 has
  CHECK(count(text, "speed=\"400000\"") == 2);                                 // NDR: 400 Gbit/s
  CHECK(count(text, "32.0 GT/s PCIe") == 4 + 4 + 2);
  CHECK(holds(text, "made up"));
  // Every element ends, in order.
  for (const char* tag : {"cpu", "gpu", "pci", "nic"})
    CHECK(count(text, std::string("<") + tag + " ") + count(text, std::string("<") + tag + ">") ==
          count(text, std::string("</") + tag + ">"));
  p.names.gpu_bus_ids = {"0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:61:00.0"};
  p.names.nic_bus_ids = {"0000:18:00.0", "0000:4d:00.0"};
  p.names.nics = {"mlx5_0", "mlx5_3"};
  text = p.text("nccl-topo");
  CHECK_FALSE(holds(text, "made up"));
  CHECK(holds(text, "busid=\"0000:43:00.0\" class=\"0x030200\""));
  CHECK(holds(text, "<net name=\"mlx5_3\" dev=\"1\""));
  // A bridge between two.
  p.cluster.nodes[0].link = "nvlink";
  p.cluster.nodes[0].link_domain = 2;
  CHECK(holds(p.text("nccl-topo"), "<nvlink target=\"0000:43:00.0\" count=\"18\" tclass=\"0x030200\"/>"));
  CHECK(count(p.text("nccl-topo"), "<nvlink") == 4);
  p.cluster.nodes[0].link = "pcie";
  CHECK(count(p.text("nccl-topo"), "<nvlink") == 0);
  p.names.gpu_bus_ids.pop_back();
  CHECK(holds(p.error("nccl-topo"), "--gpu-bus-id is given 3 times"));
  p.cluster.devices[0].compute_units = 1;
  CHECK(holds(p.error("nccl-topo"), "device gpu is none"));
}

TEST_CASE("env: only what follows from the cluster and the names given") {
  Placed p = placed(2, 4, 2, 4, 1);
  const std::string bare = p.text("env");
  CHECK_FALSE(holds(bare, "export NCCL"));
  CHECK(holds(bare, "# --interface NAME"));
  CHECK(holds(bare, "export OMPI_MCA_coll_tuned_allreduce_algorithm=4\n"));
  p.bytes.replica = 8;
  CHECK(holds(p.text("env"), "export OMPI_MCA_coll_tuned_allreduce_algorithm=3\n"));
  p.cluster.network.rails = true;
  p.names.interface = "eth0";
  p.names.nics = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"};
  p.nodes[1].occupied = 2;
  p.layout.tp = 2, p.layout.dp = 3;
  const std::string all = p.text("env");
  for (const char* line : {"export NCCL_SOCKET_IFNAME==eth0\n", "export OMPI_MCA_btl_tcp_if_include=eth0\n",
                           "export NCCL_IB_HCA==mlx5_0,mlx5_1,mlx5_2,mlx5_3\n",
                           "export UCX_NET_DEVICES=mlx5_0:1,mlx5_1:1,mlx5_2:1,mlx5_3:1\n", "export NCCL_CROSS_NIC=0\n",
                           "# on h1: CUDA_VISIBLE_DEVICES=2,3\n"})
    CHECK(holds(all, line));
  p.names.nics.pop_back();
  CHECK(holds(p.error("env"), "3 --nic names, but node box has 4 NICs"));
}

TEST_CASE("names that could not stand unescaped are refused, whatever the format") {
  const auto refused = [](const char* flag, auto&& change) {
    Placed p = placed(1, 2, 2, 1, 1);
    change(p.names);
    CAPTURE(flag);
    CHECK(p.error("k8s").find(flag) == 0);
    CHECK(p.error("env").find(flag) == 0);
  };
  refused("--interface", [](PlaceNames& n) { n.interface = "eth0; rm x"; });
  refused("--nic", [](PlaceNames& n) { n.nics = {"mlx5_0", "a\"b"}; });
  for (const char* job : {"", "Upper", "-a", "a-", "a.b", "a\nb"})
    refused("--job-name", [&](PlaceNames& n) { n.job = job; });
  refused("--job-name", [](PlaceNames& n) { n.job = std::string(64, 'a'); });
  refused("--image", [](PlaceNames& n) { n.image = "a\"b"; });
  refused("--leaf-label", [](PlaceNames& n) { n.leaf_label = "a: b"; });
  for (const char* id : {"", "1b:00.0", "0000:1b:00.8", "0000:1g:00.0", "0000:1b:00.0\"", "0000-1b:00.0"})
    refused("--gpu-bus-id", [&](PlaceNames& n) { n.gpu_bus_ids = {id}; });
  refused("--nic-bus-id", [](PlaceNames& n) {
    n.gpu_bus_ids = {"0000:1B:00.0"};
    n.nic_bus_ids = {"0000:1b:00.0"};
  });
  Placed p = placed(1, 2, 2, 1, 1);
  p.names.job = std::string(63, 'a');
  p.names.image = "registry.example:5000/team/rankwright@sha256:0a";
  CHECK(p.error("k8s").empty());
}
