// Made-up hosts in hwloc's XML, whose ways, cores and NUMA nodes are known; and what is made of them beside nvidia-smi.
#include "libcore/plan/measure/pci_topology.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/plan/measure/discover.h"
#include "libcore/plan/measure/joined_topology.h"
#include "libcore/plan/measure/pci_names.h"
#include "libcore/plan/measure/silent_gpus.h"

namespace rw {
namespace {

namespace fs = std::filesystem;
using Ways = std::vector<std::string>;
using Cores = std::vector<int64_t>;

std::string host_file(const std::string& name) {
  return std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/tests/plan/hosts/" + name + ".xml";
}
PciTopology host(const std::string& name) { return parse_pci_topology(read_file(host_file(name)), name); }

const Cores kFirst = {0, 1, 2, 3, 8, 9, 10, 11}, kSecond = {4, 5, 6, 7, 12, 13, 14, 15};

// What nvidia-smi prints of two of its GPUs, without cards and without the second's place.
const char* const kTold =
    "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV18\t0-1\t5\t\tN/A\n"
    "GPU1\tNV18\t X \tN/A\tN/A\t\tN/A\n";

}  // namespace

TEST_CASE("two sockets, each with two switches that hold a GPU and a card") {
  const PciTopology t = host("two_sockets");
  const std::string h100 = "GH100 [H100 SXM5 80GB]";
  CHECK(t.gpus == std::vector<BusGpu>{{"0000:13:00.0", h100, ""},
                                      {"0000:17:00.0", h100, ""},
                                      {"0000:83:00.0", h100, ""},
                                      {"0000:87:00.0", h100, ""}});
  const GpuTopology expected = {.gpus = {{{"X", "PHB", "SYS", "SYS"}, {"PIX", "PHB", "SYS", "SYS"}, kFirst, 0},
                                         {{"PHB", "X", "SYS", "SYS"}, {"PHB", "PIX", "SYS", "SYS"}, kFirst, 0},
                                         {{"SYS", "SYS", "X", "PHB"}, {"SYS", "SYS", "PIX", "PHB"}, kSecond, 1},
                                         {{"SYS", "SYS", "PHB", "X"}, {"SYS", "SYS", "PHB", "PIX"}, kSecond, 1}},
                                .nics = {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"},
                                .nic_cores = {kFirst, kFirst, kSecond, kSecond},
                                .knows_nvlink = false};
  CHECK(t.ways == expected);
  CHECK(gpu_topology_text(t.ways) ==
        "4 GPUs, PHB between 2 pairs, SYS between 4 pairs (NVLink not told); nearest NICs GPU 0 mlx5_0 (PIX), GPU 1 "
        "mlx5_1 (PIX), GPU 2 mlx5_2 (PIX), GPU 3 mlx5_3 (PIX)");
}

TEST_CASE("one GPU below a root port, without a name; its sound, Ethernet and software RDMA are none") {
  const PciTopology t = host("root_port");
  CHECK(t.gpus == std::vector<BusGpu>{{"0000:01:00.0", "PCI device 10de:2684", ""}});
  CHECK(t.ways == GpuTopology{.gpus = {{{"X"}, {}, {0, 1}, 0}}, .nics = {}, .nic_cores = {}, .knows_nvlink = false});
  CHECK(gpu_topology_text(t.ways) == "1 GPU");
}

TEST_CASE("two GPUs below one port") {
  std::string text = read_file(host_file("root_port"));
  text.replace(text.find("0403 [10de:22ba]"), 4, "0302");
  const PciTopology t = parse_pci_topology(text, "x");
  REQUIRE(t.gpus.size() == 2);
  CHECK(t.gpus[1] == BusGpu{"0000:01:00.1", "PCI device 10de:22ba", ""});
  CHECK(t.ways.gpus[0].gpus == Ways{"X", "PIX"});
  CHECK(t.ways.gpus[1].gpus == Ways{"PIX", "X"});
}

TEST_CASE("a host without GPUs, and one that hides its bus") {
  std::string text = read_file(host_file("no_gpus"));
  for (int i = 0; i < 2; ++i) {
    const PciTopology t = parse_pci_topology(text, "x");
    CHECK(t.gpus.empty());
    CHECK(t.ways.gpus.empty());
    CHECK(t.ways.nics.empty());
    CHECK(gpu_topology_text(t.ways).empty());
    const size_t bus = text.find("<object type=\"Bridge\"");
    if (i == 0) text.erase(bus, text.find("</object>\n    </object>", bus) - bus);
    if (i == 0) text.erase(text.find("</object>", bus), 9);
  }
  CHECK(text.find("PCIDev") == std::string::npos);
}

// Package 0: one switch below another, and a card of two functions at another root port; a second host bridge with a
// GPU; DRAM and HBM of the same cores. Package 1: a GPU. One whose place the firmware does not tell.
TEST_CASE("five GPUs, oddly placed") {
  const PciTopology t = host("odd");
  REQUIRE(t.gpus.size() == 5);
  const char* ids[] = {"0000:01:00.0", "0000:c3:00.0", "0000:c6:00.0", "0000:d1:00.0", "0000:e1:00.0"};
  for (size_t i = 0; i < 5; ++i) CHECK(t.gpus[i].bus_id == ids[i]);
  const Cores even = {0, 2, 4}, odd = {1, 3, 5, 7};
  const GpuTopology expected = {.gpus = {{{"X", "SYS", "SYS", "SYS", "SYS"}, {"SYS", "SYS"}, odd, 1},
                                         {{"SYS", "X", "PXB", "NODE", "SYS"}, {"PHB", "PHB"}, even, 0},
                                         {{"SYS", "PXB", "X", "NODE", "SYS"}, {"PHB", "PHB"}, even, 0},
                                         {{"SYS", "NODE", "NODE", "X", "SYS"}, {"NODE", "NODE"}, even, 0},
                                         {{"SYS", "SYS", "SYS", "SYS", "X"}, {"SYS", "SYS"}, {}, -1}},
                                .nics = {"mlx5_0", "mlx5_1"},
                                .nic_cores = {even, even},
                                .knows_nvlink = false};
  CHECK(t.ways == expected);
}

TEST_CASE("what is no topology is refused") {
  const std::string whole = read_file(host_file("two_sockets"));
  for (const std::string& text :
       {std::string(), std::string("GPU0 X"), std::string("<topology/>"),
        std::string("<?xml version=\"1.0\"?>\n<!DOCTYPE html>\n<html></html>\n"), whole.substr(0, whole.size() / 2)})
    CHECK_THROWS_WITH_AS(parse_pci_topology(text, "h.xml"), doctest::Contains("h.xml: expected a host's topology"),
                         Error);
}

TEST_CASE("the host that HWLOC_XMLFILE names") {
  ::setenv("HWLOC_XMLFILE", host_file("two_sockets").c_str(), 1);
  CHECK(read_pci_topology().ways == host("two_sockets").ways);
  CHECK(read_pci_topology().gpus[0].driver.empty());  // not this machine's
  ::setenv("HWLOC_XMLFILE", "/nowhere.xml", 1);
  CHECK_THROWS_WITH_AS(read_pci_topology(), doctest::Contains("/nowhere.xml"), Error);
  ::setenv("HWLOC_XMLFILE", "/proc/self/cmdline", 1);
  CHECK_THROWS_WITH_AS(read_pci_topology(), doctest::Contains("HWLOC_XMLFILE="), Error);
  ::setenv("HWLOC_XMLFILE", "", 1);
  CHECK_FALSE(read_pci_topology().ways.knows_nvlink);  // this machine, whatever it has
  ::unsetenv("HWLOC_XMLFILE");
}

TEST_CASE("addresses have one spelling, and drivers are the kernel's") {
  CHECK(pci_bus_id("00000000:1B:00.0") == "0000:1b:00.0");
  CHECK(pci_bus_id("0000:1b:00.7") == "0000:1b:00.7");
  CHECK(pci_bus_id("00010000:E1:00.0") == "10000:e1:00.0");
  for (const char* text : {"", "N/A", "1b:00.0", "0000:1b:00", "0000:1g:00.0", "0000-1b:00.0", "000000000:1b:00.0",
                           "0000:1b:000.", "46068"})
    CHECK(pci_bus_id(text).empty());
  const fs::path root = fs::temp_directory_path() / ("rw_pci_" + std::to_string(::getpid()));
  const fs::path device = root / "sys/bus/pci/devices/0000:1b:00.0";
  fs::create_directories(device);
  fs::create_symlink("../../../../bus/pci/drivers/vfio-pci", device / "driver");
  CHECK(pci_driver(root, "0000:1b:00.0") == "vfio-pci");
  CHECK(pci_driver(root, "0000:1c:00.0").empty());
  fs::remove_all(root);
}

TEST_CASE("names from pci.ids") {
  const std::string list =
      "# a list\n\n10dd  Another\n\t2330  not this\n10de  NVIDIA Corporation\n\t2321  GH100 [H100L 94GB]\n"
      "\t\t2330 1  a board\n\t2330  GH100 [H100 SXM5 80GB]\r\n10df  Emulex\n\t2331  not this either";
  CHECK(pci_name(list, {0x10de, 0x2330}) == "GH100 [H100 SXM5 80GB]");
  CHECK(pci_name(list, {0x10df, 0x2331}) == "not this either");
  CHECK(pci_name(list, {0x10de, 0x2331}).empty());
  CHECK(pci_name(list, {0x10e0, 0x2331}).empty());
  CHECK(pci_name("", {0x10de, 0x2330}).empty());
  const fs::path root = fs::temp_directory_path() / ("rw_pci_ids_" + std::to_string(::getpid()));
  CHECK(read_pci_ids(root).empty());
  fs::create_directories(root / "usr/share/hwdata");
  write_file_atomic(root / "usr/share/hwdata/pci.ids", list);
  CHECK(read_pci_ids(root) == list);
  fs::remove_all(root);
}

TEST_CASE("nvidia-smi goes before the bus, which fills what it leaves out") {
  const PciTopology bus = host("two_sockets");
  const GpuTopology told = parse_gpu_topology(kTold);
  REQUIRE(told.gpus.size() == 2);
  // Two of the four, as in a container: the addresses say which.
  const GpuTopology t = joined_topology(told, {"00000000:17:00.0", "00000000:87:00.0"}, bus);
  CHECK(t.knows_nvlink);
  CHECK(t.gpus[0] == GpuNeighbours{{"X", "NV18"}, {"PHB", "PIX", "SYS", "SYS"}, {0, 1}, 5});
  CHECK(t.gpus[1] == GpuNeighbours{{"NV18", "X"}, {"SYS", "SYS", "PHB", "PIX"}, kSecond, 1});
  CHECK(t.nics == bus.ways.nics);
  CHECK(t.nic_cores == bus.ways.nic_cores);
  // Without addresses, or with one that the bus does not have, nobody can say which GPU is which.
  for (const std::vector<std::string>& ids :
       {std::vector<std::string>{}, {"00000000:17:00.0", "00000000:99:00.0"}, {"00000000:17:00.0"}}) {
    const GpuTopology same = joined_topology(told, ids, bus);
    CHECK(same.gpus == told.gpus);
    CHECK(same.nics.empty());
  }
  // As many on the bus: in the same order.
  const GpuTopology two = parse_pci_topology(read_file(host_file("root_port")), "x").ways;
  const GpuTopology one =
      joined_topology(parse_gpu_topology("\tGPU0\tCPU Affinity\nGPU0\t X \tN/A\n"), {}, host("root_port"));
  CHECK(one.gpus == two.gpus);
  CHECK(one.knows_nvlink);
  // Cards that nvidia-smi names keep its ways, and get their cores by name.
  const GpuTopology cards = joined_topology(
      parse_gpu_topology("\tGPU0\tNIC0\tNIC1\nGPU0\t X \tPIX\tSYS\n\nNIC Legend:\n  NIC0: mlx5_3\n  NIC1: other\n"),
      {"00000000:13:00.0"}, bus);
  CHECK(cards.gpus[0] == GpuNeighbours{{"X"}, {"PIX", "SYS"}, kFirst, 0});
  CHECK(cards.nics == Ways{"mlx5_3", "other"});
  CHECK(cards.nic_cores == std::vector<Cores>{kSecond, {}});
}

TEST_CASE("without nvidia-smi's matrix the bus speaks alone") {
  const PciTopology bus = host("two_sockets");
  CHECK(joined_topology({}, {}, bus) == bus.ways);
  const GpuTopology t = joined_topology({}, {"00000000:17:00.0", "00000000:83:00.0"}, bus);
  CHECK_FALSE(t.knows_nvlink);
  REQUIRE(t.gpus.size() == 2);
  CHECK(t.gpus[0] == GpuNeighbours{{"X", "SYS"}, {"PHB", "PIX", "SYS", "SYS"}, kFirst, 0});
  CHECK(t.gpus[1] == GpuNeighbours{{"SYS", "X"}, {"SYS", "SYS", "PIX", "PHB"}, kSecond, 1});
  CHECK(joined_topology({}, {"00000000:99:00.0"}, bus) == GpuTopology{});
  CHECK(joined_topology({}, {}, {}) == GpuTopology{});
  CHECK(joined_topology(parse_gpu_topology(kTold), {}, {}).gpus == parse_gpu_topology(kTold).gpus);
}

TEST_CASE("dplan discover: a bus that does not tell of NVLink leaves the profile's link") {
  const std::vector<ClusterSpec> shipped = {
      load_cluster_spec(std::string(std::getenv("RANKWRIGHT_SOURCE")) + "/configs/clusters/h100-sxm.toml")};
  HostFacts facts{.name = "here", .memory = int64_t{512} << 30};
  facts.gpus.assign(4, {.name = "NVIDIA H100 80GB HBM3", .memory = int64_t{81559} << 20, .bus_id = ""});
  facts.gpus_from = "CUDA";
  facts.topology = host("two_sockets").ways;
  const Discovered found = gpu_cluster(facts, shipped);
  const NodeType& node = found.cluster.nodes.at(0);
  CHECK(node.link == shipped[0].nodes[0].link);
  CHECK(node.link_bandwidth == shipped[0].nodes[0].link_bandwidth);
  CHECK(node.nics == 4);
  CHECK(found.notes.at(0) == "here: 4 x NVIDIA H100 80GB HBM3, 79.6 GiB each (CUDA)");
  CHECK(found.notes.back().find("(NVLink not told)") != std::string::npos);
  CHECK(found.notes.back().find("(hwloc); the link is still the profile's") != std::string::npos);
}

TEST_CASE("a set of cores without the complete one is refused, which hwloc would not survive") {
  const std::string xml =
      read_file(std::filesystem::path(std::getenv("RANKWRIGHT_SOURCE")) / "tests/plan/hosts/two_sockets.xml");
  for (const std::string name : {"complete_cpuset", "complete_nodeset"}) {
    std::string cut = xml;
    const size_t at = cut.find(" " + name + "=");
    REQUIRE(at != std::string::npos);
    cut.erase(at, cut.find('"', cut.find('"', at) + 1) + 1 - at);
    CHECK_THROWS_WITH_AS(parse_pci_topology(cut, "cut.xml"), doctest::Contains("cut.xml"), Error);
  }
}

TEST_CASE("what a command prints: in time, and in ASCII") {
  CHECK(output_of("printf 'a\\377\\001b\\tc\\n'").text == "a??b\tc\n");
  CHECK(output_of("yes").text.size() < (2 << 20));
  CHECK_FALSE(output_of("yes").is_late);
  CHECK(output_of("no-such-command-here 2>/dev/null").text.empty());
  CHECK_FALSE(output_of("false").is_late);
  CHECK(output_of("sh -c 'exit 14'").code == 14);
  CHECK(output_of("sleep 60", 1).is_late);
  const CommandOutput stubborn = output_of("sh -c 'trap \"\" TERM; echo begun; while :; do sleep 1; done'", 1);
  CHECK(stubborn.is_late);
  CHECK(stubborn.text == "begun\n");
}

TEST_CASE("GPUs beside those that nvidia-smi lists") {
  const PciTopology odd = host("odd");
  REQUIRE(odd.gpus.size() > 1);
  std::vector<ClusterSpec> shipped;
  for (const std::string& name : cluster_names()) shipped.push_back(load_cluster_spec(name));
  HostFacts facts;
  facts.memory = int64_t{1} << 40;
  facts.bus_gpus = odd.gpus;
  for (const BusGpu& gpu : odd.gpus)
    facts.gpus.push_back({.name = "NVIDIA A100-SXM4-40GB", .memory = int64_t{40} << 30, .bus_id = gpu.bus_id});
  const auto told = [&] {
    for (const std::string& note : gpu_cluster(facts, shipped).notes)
      if (note.starts_with("not in this file, on the PCI bus but not told of by nvidia-smi: ")) return note;
    return std::string();
  };
  CHECK(told().empty());
  const auto ends = [&] { return gpu_cluster(facts, shipped).notes.back(); };
  CHECK(ends().find("nvidia-smi ended") == std::string::npos);
  facts.smi_code = 14;
  CHECK(ends().find("nvidia-smi ended with code 14") != std::string::npos);
  facts.smi_code = 0;
  facts.gpus.pop_back();
  CHECK(told().find(bus_gpus_text({odd.gpus.back()})) != std::string::npos);
  facts.bus_file = "far.xml";  // another machine's bus has others
  CHECK(told().empty());
  facts.bus_file = "";
  facts.gpus[0].bus_id = "";  // which it lists is not known
  CHECK(told().empty());
}

TEST_CASE("GPUs that do not answer: why, and what to do") {
  std::vector<ClusterSpec> shipped;
  for (const std::string& name : cluster_names()) shipped.push_back(load_cluster_spec(name));
  HostFacts facts;
  facts.bus_gpus = host("odd").gpus;
  facts.bus_gpus.resize(2);
  facts.topology = joined_topology({}, {"0000:01:00.0", "0000:c3:00.0"}, host("odd"));
  const std::vector<std::string> notes = unused_gpus_notes(facts, shipped);
  REQUIRE(notes.size() == 3);
  CHECK(
      notes[0] ==
      "not in this file: this host's NVIDIA GPUs, 2 x GA100 [A100 SXM4 40GB] at 0000:01:00.0, 0000:c3:00.0. nvidia-smi "
      "does not tell of them: no kernel driver has taken them");
  CHECK(notes[1].find("2 GPUs, SYS between all (NVLink not told)") != std::string::npos);
  CHECK(notes[1].find("Not known: their memory and NVLinks") != std::string::npos);
  CHECK(notes[2].find("install NVIDIA's driver") != std::string::npos);
  CHECK(notes[2].find("a100-40") != std::string::npos);
  facts.why_no_cuda = "cudaErrorNoDevice";
  CHECK(unused_gpus_notes(facts, shipped)[0].ends_with("; CUDA: cudaErrorNoDevice"));
  const auto why = [](const char* driver) { return gpu_silence({.gpus = {{"a", "b", driver}}, .file = ""}).why; };
  CHECK(why("nvidia").find("nvidia-smi is not found or fails") != std::string::npos);
  CHECK(why("nouveau").find("nouveau") != std::string::npos);
  CHECK(why("vfio-pci").find("virtual machines") != std::string::npos);
  CHECK(why("other").find("the driver other") != std::string::npos);
  CHECK(gpu_silence({.gpus = {{"a", "b", "nouveau"}, {"c", "b", ""}, {"d", "b", ""}}, .file = ""}).why ==
        "no kernel driver has taken them; the driver nouveau has taken them, which CUDA cannot use");
  CHECK(gpu_silence({}).why.empty());
  const GpuSilence late = gpu_silence({.gpus = {{"a", "b", "nvidia"}}, .file = "", .smi_is_late = true});
  CHECK(late.why.find("had not answered after 20 seconds") != std::string::npos);
  CHECK(late.remedy.find("Xid") != std::string::npos);
  // Of another machine's file nothing is said about drivers.
  const GpuSilence of_file = gpu_silence({.gpus = {{"a", "b", ""}}, .file = "far.xml"});
  CHECK(of_file.why.find("far.xml") != std::string::npos);
  CHECK(of_file.why.find("driver has taken") == std::string::npos);
  facts.bus_file = "far.xml";
  CHECK(unused_gpus_notes(facts, shipped)[0].find("far.xml") != std::string::npos);
  CHECK(bus_gpus_text({}).empty());
}

}  // namespace rw
