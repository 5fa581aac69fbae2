// What `nvidia-smi topo -m` prints, in the forms that NVIDIA's and others' documentation show, and what is made of it.
#include "libcore/plan/measure/gpu_topology.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/plan/measure/discover.h"
#include "libcore/plan/measure/kernel_results.h"

namespace rw {
namespace {

using Groups = std::vector<std::vector<int64_t>>;

// Four GPUs in pairs with NVLink, two network cards, two sockets; underlined as on a terminal.
const char* const kPairs =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tSYS\tSYS\tPIX\tSYS\t0-3,8\t0\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tSYS\tPXB\tSYS\t0-3,8\t0\t\tN/A\n"
    "GPU2\tSYS\tSYS\t X \tNV12\tSYS\tNODE\t4-7\t1\t\tN/A\n"
    "GPU3\tSYS\tSYS\tNV12\t X \tSYS\tSYS\t4-7\t1\t\tN/A\n"
    "NIC0\tPIX\tPXB\tSYS\tSYS\t X \tSYS\t\t\t\t\n"
    "NIC1\tSYS\tSYS\tNODE\tSYS\tSYS\t X \t\t\t\t\n"
    "\n"
    "Legend:\n"
    "\n"
    "  X    = Self\n"
    "  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)\n"
    "  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\n"
    "NIC Legend:\n"
    "\n"
    "  NIC0: mlx5_0\n"
    "  NIC1: mlx5_1\n";

// The older form: cards by name, and as a web page shows it, with spaces.
const char* const kSpaces =
    "        GPU0    GPU1    mlx5_0  CPU Affinity\n"
    "GPU0     X      NV18    NODE    0-47,96-143\n"
    "GPU1    NV18     X      SYS     0-47,96-143\n"
    "mlx5_0  NODE    SYS      X\n";

HostFacts host_with(const GpuTopology& topology) {
  HostFacts host{.name = "here", .memory = int64_t{512} << 30};
  host.gpus.assign(std::max<size_t>(1, topology.gpus.size()),
                   {.name = "NVIDIA H100 80GB HBM3", .memory = int64_t{81559} << 20});
  host.topology = topology;
  return host;
}
const NodeType& node_of(const Discovered& found) { return found.cluster.nodes.front(); }

std::vector<ClusterSpec> shipped() {
  return {load_cluster_spec(std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/configs/clusters/h100-sxm.toml")};
}

}  // namespace

TEST_CASE("the matrix of four GPUs and two network cards") {
  const GpuTopology t = parse_gpu_topology(kPairs);
  REQUIRE(t.gpus.size() == 4);
  CHECK(t.nics == std::vector<std::string>{"mlx5_0", "mlx5_1"});
  CHECK(t.gpus[1].gpus == std::vector<std::string>{"NV12", "X", "SYS", "SYS"});
  CHECK(t.gpus[0].cores == std::vector<int64_t>{0, 1, 2, 3, 8});
  CHECK(t.gpus[2].numa_node == 1);
  CHECK(nvlink_groups(t) == Groups{{0, 1}, {2, 3}});
  CHECK(nearest_nics(t, 0) == NearNics{"PIX", {"mlx5_0"}});
  CHECK(nearest_nics(t, 3) == NearNics{});
  CHECK(gpu_topology_text(t) ==
        "4 GPUs, NV12 between 2 pairs, SYS between 4 pairs; nearest NICs GPU 0 mlx5_0 (PIX), GPU 1 mlx5_0 (PXB), GPU 2 "
        "mlx5_1 (NODE), GPU 3 none near");
}

TEST_CASE("the older form, with spaces") {
  const GpuTopology t = parse_gpu_topology(kSpaces);
  REQUIRE(t.gpus.size() == 2);
  CHECK(nvlinks(t.gpus[0].gpus[1]) == 18);
  CHECK(t.nics == std::vector<std::string>{"mlx5_0"});
  CHECK(t.gpus[0].cores.size() == 96);
  CHECK(t.gpus[0].numa_node == -1);
  CHECK(gpu_topology_text(t) == "2 GPUs, NV18 between all; nearest NICs GPU 0 mlx5_0 (NODE), GPU 1 none near");
}

TEST_CASE("one GPU has no links") {
  const GpuTopology t =
      parse_gpu_topology("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\tN/A\t\tN/A\n");
  REQUIRE(t.gpus.size() == 1);
  CHECK(t.gpus[0].numa_node == -1);
  CHECK(nvlink_groups(t) == Groups{{0}});
  CHECK(gpu_topology_text(t) == "1 GPU");
}

TEST_CASE("what is no such matrix gives no GPU") {
  for (const char* text : {"", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
                           "No devices were found\n", "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0\n",
                           "\tGPU0\tCPU Affinity\nGPU0\tbroken\t0\n", "\tGPU0\nGPU0\n"})
    CHECK(parse_gpu_topology(text) == GpuTopology{});
  CHECK(gpu_topology_text({}).empty());
}

TEST_CASE("lists of cores") {
  CHECK(parse_core_list("0-2, 5") == std::vector<int64_t>{0, 1, 2, 5});
  CHECK(parse_core_list("7") == std::vector<int64_t>{7});
  for (const char* text : {"", "N/A", "3-1", "0-99999999999", "1,,2", "-4"}) CHECK(parse_core_list(text).empty());
}

TEST_CASE("dplan discover: a record of kernels is of this host's GPU") {
  Discovered found = gpu_cluster(host_with({}), shipped());
  const std::string here = found.gpu;
  KernelFractions f;
  f.gemm = 0.5;
  f.where = "k.json";
  for (const std::string& other :
       {std::string("cuda:0 (simulated GPU)"), std::string("cuda:0 (NVIDIA A100-SXM4-40GB)")}) {
    f.backend = other;
    CHECK_THROWS_WITH_AS(take_fractions(found, f), doctest::Contains(("found a record of " + other).c_str()), Error);
  }
  f.backend = "cuda:0 (" + here + ")";
  take_fractions(found, f);
  CHECK(found.cluster.devices[0].gemm_fraction == doctest::Approx(0.5));
}

TEST_CASE("dplan discover: links and cards are this host's") {
  const NodeType profile = shipped()[0].nodes[0];
  const NodeType pairs = node_of(gpu_cluster(host_with(parse_gpu_topology(kPairs)), shipped()));
  CHECK(pairs.link_domain == 2);
  CHECK(pairs.nics == 2);
  CHECK(pairs.link == "nvlink");
  CHECK(pairs.link_bandwidth == 12 * 25e9);  // of the profile's 18
  CHECK(pairs.collectives.empty());          // measured through its switch

  const NodeType all = node_of(gpu_cluster(host_with(parse_gpu_topology(kSpaces)), shipped()));
  CHECK(all.link_domain == 0);

  const NodeType none = node_of(gpu_cluster(
      host_with(parse_gpu_topology("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0\nGPU1\tPHB\t X \t0\n")), shipped()));
  CHECK(none.link == "pcie");
  CHECK(none.link_bandwidth == (profile.pcie_bandwidth > 0 ? profile.pcie_bandwidth : profile.link_bandwidth));
  CHECK(none.nics == profile.nics);
  CHECK(none.collectives.empty());

  const NodeType untold = node_of(gpu_cluster(host_with({}), shipped()));
  CHECK(untold.nics == profile.nics);
}

}  // namespace rw
