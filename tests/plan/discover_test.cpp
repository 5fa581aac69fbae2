#include "libcore/plan/measure/discover.h"
#include "libcore/plan/measure/gpu_profile.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <unistd.h>
#include <cstdlib>
#include <fstream>

#include "libcore/base/error.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

std::vector<ClusterSpec> shipped() {
  std::vector<ClusterSpec> all;
  for (const char* name :
       {"a100-40", "a100-80", "h100-sxm", "h100-pcie", "h200", "b200", "l40s", "rtx4090", "cpu-2core"})
    all.push_back(load_cluster_spec(fs::path(std::getenv("RANKWRIGHT_SOURCE")) / "configs" / "clusters" /
                                    (std::string(name) + ".toml")));
  return all;
}

struct Tree {
  fs::path root = fs::temp_directory_path() / fmt::format("rw_host_{}", ::getpid());
  Tree() { fs::remove_all(root); }
  ~Tree() { fs::remove_all(root); }
  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  }
};

bool mentions(const std::vector<std::string>& notes, const std::string& part) {
  for (const std::string& note : notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}

TEST_CASE("a host's cores, NUMA nodes and memory") {
  const Tree tree;
  // Two sockets of three cores with two threads each; node2 has memory alone.
  for (int cpu = 0; cpu < 12; ++cpu)
    tree.write(fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu),
               fmt::format("{},{}\n", cpu % 6, cpu % 6 + 6));
  tree.write("sys/devices/system/cpu/cpufreq/x", "");
  tree.write("sys/devices/system/node/node0/cpulist", "0-2,6-8\n");
  tree.write("sys/devices/system/node/node1/cpulist", "3-5,9-11\n");
  tree.write("sys/devices/system/node/node2/cpulist", "\n");
  tree.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz\nprocessor\t: 1\nmodel name\t: other\n");
  tree.write("proc/meminfo", "MemTotal:       1000 kB\nMemFree: 5 kB\nMemAvailable:    300 kB\n");
  HostFacts facts = read_host_facts(tree.root);
  CHECK(facts.cores == 6);
  CHECK(facts.numa_nodes == 2);
  CHECK(facts.cpu_model == "A CPU @ 2.00GHz");
  CHECK(facts.memory == 1000 << 10);
  CHECK(facts.memory_taken == 700 << 10);
  tree.write("sys/fs/cgroup/memory.max", "max\n");
  CHECK(read_host_facts(tree.root).memory == 1000 << 10);
  tree.write("sys/fs/cgroup/memory.max", "400000\n");
  tree.write("sys/fs/cgroup/memory.current", "150000\n");
  facts = read_host_facts(tree.root);
  CHECK(facts.memory == 400000);
  CHECK(facts.memory_taken == 150000);
  fs::remove(tree.root / "proc/meminfo");
  CHECK_THROWS_WITH_AS(read_host_facts(tree.root), doctest::Contains("MemTotal"), Error);
}

TEST_CASE("what nvidia-smi prints") {
  const auto gpus = parse_gpus(
      "NVIDIA H100 80GB HBM3, 81559\nNVIDIA Weird, Name, 1\nNVIDIA-SMI has failed\nX, [N/A]\n, 5\n\nY, -3\nZ, 7");
  REQUIRE(gpus.size() == 3);
  CHECK(gpus[0] == GpuFacts{.name = "NVIDIA H100 80GB HBM3", .memory = int64_t{81559} << 20});
  CHECK(gpus[1].name == "NVIDIA Weird, Name");
  CHECK(gpus[2] == GpuFacts{.name = "Z", .memory = 7 << 20});
  CHECK(parse_gpus("").empty());
  CHECK(parse_gpus("A\x1b[31mB, 5\n").at(0).name == "A?[31mB");  // no terminal is told what to do
  const auto placed =
      parse_gpus("NVIDIA Weird, Name, 1, 00000000:1B:00.0\n5, 00000000:1B:00.0\nX, [N/A], 00000000:1B:00.0\n");
  REQUIRE(placed.size() == 1);
  CHECK(placed[0] == GpuFacts{.name = "NVIDIA Weird, Name", .memory = 1 << 20, .bus_id = "0000:1b:00.0"});
}

TEST_CASE("a GPU's name finds its profile") {
  std::vector<DeviceType> known;
  for (const ClusterSpec& c : shipped())
    for (const DeviceType& d : c.devices) known.push_back(d);
  const auto match = [&](const char* name, int64_t mib) {
    const DeviceType* type = match_gpu({.name = name, .memory = mib << 20}, known);
    return type == nullptr ? std::string("none") : type->name;
  };
  CHECK(match("NVIDIA A100-SXM4-40GB", 40960) == "a100-40");
  CHECK(match("NVIDIA A100-SXM4-80GB", 81920) == "a100-80");
  CHECK(match("NVIDIA A100 80GB PCIe", 81920) == "a100-80");
  CHECK(match("NVIDIA H100 80GB HBM3", 81559) == "h100-sxm");
  CHECK(match("NVIDIA H100 PCIe", 81559) == "h100-pcie");
  CHECK(match("NVIDIA H200", 143771) == "h200");
  CHECK(match("NVIDIA B200", 183359) == "b200");
  CHECK(match("NVIDIA L40S", 46068) == "l40s");
  CHECK(match("NVIDIA GeForce RTX 4090", 24564) == "rtx4090");
  CHECK(match("NVIDIA L40", 46068) == "none");
  CHECK(match("NVIDIA GH200 480GB", 97871) == "none");
  CHECK(match("NVIDIA GeForce RTX 4090 D", 24564) == "rtx4090");
  CHECK(match("Tesla V100-SXM2-32GB", 32768) == "none");
}

TEST_CASE("a node of known GPUs takes its profile's numbers, its own count and memory") {
  HostFacts host{.name = "gpu7", .memory = int64_t{1} << 40};
  host.gpus.assign(8, {.name = "NVIDIA H100 80GB HBM3", .memory = int64_t{81000} << 20});
  for (size_t i = 0; i < 8; ++i) host.gpus[i].bus_id = fmt::format("0000:{:02x}:00.0", i);
  Discovered found = gpu_cluster(host, shipped());
  const DeviceType& d = found.cluster.devices.at(0);
  CHECK(d.name == "h100-sxm");
  CHECK(d.peak_bf16 == 989e12);
  CHECK(d.memory == int64_t{81000} << 20);
  const NodeType& node = found.cluster.nodes.at(0);
  CHECK(node.count == 1);
  CHECK(node.devices == 8);
  CHECK(node.link_bandwidth == 450e9);
  CHECK(node.collectives.size() == 3);
  CHECK(node.host_memory == host.memory);
  CHECK_FALSE(mentions(found.notes, "the GPUs differ"));
  CHECK(parse_cluster_spec(discovered_toml(found), found.cluster.where) == found.cluster);

  host.gpus.assign(4, {.name = "NVIDIA A100-SXM4-80GB", .memory = int64_t{81920} << 20});
  host.gpus[3].name = "NVIDIA L40S";
  found = gpu_cluster(host, shipped());
  CHECK(found.cluster.nodes[0].collectives.empty());  // the tables are of 8
  CHECK(mentions(found.notes, "the GPUs differ"));

  host.gpus.assign(2, {.name = "Tesla V100-SXM2-32GB (rev. \"a\")", .memory = int64_t{32768} << 20});
  found = gpu_cluster(host, shipped());
  CHECK(found.cluster.devices[0].name == "tesla-v100-sxm2-32gb-rev-a");
  CHECK(found.cluster.devices[0].provenance == "guess");
  CHECK(found.cluster.devices[0].memory == int64_t{32768} << 20);
  CHECK(mentions(found.notes, "no shipped profile"));
  CHECK(parse_cluster_spec(discovered_toml(found), "x").devices == found.cluster.devices);
}

TEST_CASE("cores are dealt to ranks") {
  const auto dealt = [](int64_t ranks, int64_t threads, int64_t cores, int64_t numa) {
    const RankCores r = deal_cores({.ranks_per_node = ranks, .threads = threads}, {.cores = cores, .numa_nodes = numa});
    return std::pair(r.ranks, r.threads);
  };
  CHECK(dealt(0, 0, 1, 1) == std::pair(1, 1));
  CHECK(dealt(0, 0, 2, 1) == std::pair(2, 1));
  CHECK(dealt(0, 0, 13, 1) == std::pair(2, 6));
  CHECK(dealt(0, 0, 64, 4) == std::pair(4, 16));
  CHECK(dealt(3, 0, 13, 1) == std::pair(3, 4));
  CHECK(dealt(0, 5, 13, 4) == std::pair(2, 5));
  CHECK(dealt(0, 13, 13, 4) == std::pair(1, 13));
  CHECK(dealt(1, 2, 13, 4) == std::pair(1, 2));
  CHECK_THROWS_WITH_AS(dealt(3, 5, 13, 1), doctest::Contains("13 cores"), Error);
  CHECK_THROWS_AS(dealt(3, 0, 2, 1), Error);
  CHECK_THROWS_AS(dealt(0, 3, 2, 1), Error);
}

CpuFindings some_cpu() {
  return {.host = {.name = "box \"1\"\n",
                   .cpu_model = "A CPU",
                   .cores = 4,
                   .memory = (int64_t{1} << 33) + 5,
                   .memory_taken = 1 << 20},
          .cores = {.ranks = 3, .threads = 1},
          .speed = {.peak_f32 = 1e11,
                    .peak_bf16 = 2e12,
                    .peak_f16 = 1e11,
                    .bytes_per_s = 1.3e10,
                    .launch_s = 3e-7,
                    .instruction_f32 = "avx512 vfmadd",
                    .instruction_bf16 = "amx tdpbf16ps",
                    .cpu_share = 0.99}};
}

TEST_CASE("a CPU node from what was measured") {
  CpuFindings cpu = some_cpu();
  Discovered found = cpu_cluster(cpu);
  CHECK(found.is_quiet);
  const DeviceType& d = found.cluster.devices.at(0);
  CHECK(d.memory == ((int64_t{1} << 33) + 5) / 3);
  CHECK(d.reserve == (1 << 20) / 3);
  CHECK(d.peak_bf16 == 2e12);
  CHECK(d.launch == 3e-7);
  CHECK(d.compute_units == 1);
  CHECK(found.cluster.nodes.at(0).devices == 3);
  CHECK(found.cluster.nodes[0].link_bandwidth == 6.5e9);
  const std::string toml = discovered_toml(found);
  CHECK(parse_cluster_spec(toml, "") == found.cluster);
  CHECK(toml.find("# measured, all ranks at once") != std::string::npos);
  CHECK(toml.find("not quiet") == std::string::npos);
  cpu.speed.cpu_share = 0.85;
  found = cpu_cluster(cpu);
  CHECK_FALSE(found.is_quiet);
  CHECK(discovered_toml(found).find("# not quiet: the threads ran 85 % of the time") != std::string::npos);
}

TEST_CASE("the cores of this machine have some speed") {
  const CpuSpeed s = measure_cpu_speed({.ranks = 2, .threads = 1, .seconds = 0.01, .copy_bytes = 1 << 20});
  CHECK(s.peak_f32 > 1e8);
  CHECK(s.peak_bf16 >= s.peak_f32 * 0.2);
  CHECK(s.bytes_per_s > 1e7);
  CHECK(s.launch_s > 0);
  CHECK(s.cpu_share > 0);
  CHECK(s.cpu_share < 1.2);
  CHECK_FALSE(s.instruction_f32.empty());
}

std::string comm_line(const char* op, int64_t bytes, double us, const std::string& rest) {
  return fmt::format("{{\"op\":\"{}\",\"bytes\":{},\"us\":{},{}}}\n", op, bytes, us, rest);
}

TEST_CASE("links from what dbench comm measured") {
  const std::string shared = "\"way\":\"auto\",\"memory\":\"shared\",\"ranks\":3,\"nodes\":1,\"wrong\":0";
  const std::string ring = "\"way\":\"ring\",\"memory\":\"shared\",\"ranks\":3,\"nodes\":1,\"wrong\":null";
  const std::string apart = "\"way\":\"auto\",\"memory\":\"private\",\"ranks\":2,\"nodes\":2";
  const std::string mixed = "\"way\":\"auto\",\"memory\":\"private\",\"ranks\":4,\"nodes\":2";
  std::string text;
  for (const int64_t n : {1000, 10000, 100000, 1000000}) {
    const double size = static_cast<double>(n);
    text += comm_line("all_reduce", n, 8 + size / 4e3, shared + ",\"in_place\":true");  // 8 us, 4 GB/s
    text += comm_line("all_reduce", n, 1, ring);                                        // not what jobs take
    text += comm_line("all_reduce", n, 2, shared + ",\"in_place\":false");
    text += comm_line("broadcast", n, 1, shared);
    text += comm_line("send_recv", n, 2 + size / 6e3, shared);
    text += comm_line("all_gather", n, 30 + size / 1e3, apart);
    text += comm_line("all_gather", n, 1, mixed);
  }
  const LinkFits fits = fit_comm_results(text + "\n", "comm.json");
  REQUIRE(fits.node.size() == 2);
  REQUIRE(fits.network.size() == 1);
  CHECK(fits.nodes == 2);
  CHECK(mentions(fits.notes, "all_gather over 4 ranks on 2 nodes"));
  // As a record, in one line or several: the same rows.
  std::string rows = text.substr(0, text.size() - 1);
  for (size_t at = 0; (at = rows.find('\n', at)) != std::string::npos;) rows[at] = ',';
  for (const char* gap : {"", "\n"}) {
    const std::string record = fmt::format("{{\"bench\":\"comm\",{}\"details\":{{\"rows\":[{}]}}}}\n", gap, rows);
    const LinkFits same = fit_comm_results(record, "comm.json");
    CHECK(same.node == fits.node);
    CHECK(same.network == fits.network);
    CHECK(same.nodes == 2);
  }
  CHECK(fits.node[0].kind == "all_reduce");
  CHECK(fits.node[0].ranks == 3);
  CHECK(fits.node[0].provenance == "measured");
  REQUIRE(fits.node[0].segments.size() == 1);
  CHECK(fits.node[0].segments[0].alpha == doctest::Approx(8e-6));
  CHECK(fits.node[0].segments[0].bandwidth == doctest::Approx(4e9));
  // A ring of 3: 4 rounds, each wire carries 4/3 of the bytes; two nodes: 1 round of half the array.
  CHECK(link_below(fits.node[0]).latency == doctest::Approx(2e-6));
  CHECK(link_below(fits.node[0]).bandwidth == doctest::Approx(4e9 * 4 / 3).epsilon(1e-3));
  CHECK(link_below(fits.network[0]).latency == doctest::Approx(30e-6));
  CHECK(link_below(fits.network[0]).bandwidth == doctest::Approx(0.5e9));
  CHECK(plainest(fits.node)->kind == "send");
  CHECK(plainest({}) == nullptr);

  Discovered found = cpu_cluster(some_cpu());
  CHECK(mentions(found.notes, "give --comm-json"));
  take_links(found, fits);
  take_links(found, fits);  // the same again changes nothing
  const NodeType& node = found.cluster.nodes[0];
  CHECK(node.collectives == fits.node);
  CHECK(node.link_bandwidth == doctest::Approx(6e9));
  CHECK(node.link_latency == doctest::Approx(2e-6));
  CHECK(node.nic_bandwidth == doctest::Approx(0.5e9));
  CHECK(node.count == 2);
  CHECK(found.cluster.network.collectives.size() == 1);
  CHECK_FALSE(mentions(found.notes, "give --comm-json"));
  CHECK(parse_cluster_spec(discovered_toml(found), "") == found.cluster);

  CpuFindings two = some_cpu();
  two.cores.ranks = 2;
  Discovered small = cpu_cluster(two);
  CHECK_THROWS_WITH_AS(take_links(small, fits), doctest::Contains("--ranks-per-node 3"), Error);
}

TEST_CASE("fits are of the way that jobs take, and bad ones are guesses") {
  const auto in = [](const std::string& way) {
    return "\"way\":\"" + way + "\",\"memory\":\"shared\",\"ranks\":2,\"nodes\":1";
  };
  std::string tried, one_way, library, noise, scatter;
  for (const int64_t n : {1000, 10000, 100000, 1000000}) {
    const double size = static_cast<double>(n);
    // The faster of two ways is 5 us + bytes / 2 GB/s; the library's is faster still.
    tried += comm_line("all_reduce", n, 5 + size / 2e3, in(n < 50000 ? "direct" : "ring") + ",\"in_place\":true");
    tried += comm_line("all_reduce", n, 50 + size / 1e3, in(n < 50000 ? "ring" : "direct") + ",\"in_place\":true");
    library += comm_line("all_reduce", n, 1 + size / 9e3, in("mpi-blocking") + ",\"in_place\":true");
    one_way += comm_line("all_reduce", n, 5 + size / 2e3, in("ring") + ",\"in_place\":true");
    scatter += comm_line("reduce_scatter", n, 3 + size / 4e3, in("direct"));
    scatter += comm_line("reduce_scatter", n, 100 + size, in("mpi-blocking"));
  }
  for (const int i : {0, 1, 2, 3, 4, 5}) noise += comm_line("send_recv", 1000 << i, i % 2 == 0 ? 1 : 100, in("direct"));
  LinkFits fits = fit_comm_results(tried + library, "t");
  REQUIRE(fits.node.size() == 1);
  CHECK(fits.node[0].segments.at(0).alpha == doctest::Approx(5e-6));
  CHECK(fits.node[0].segments.at(0).bandwidth == doctest::Approx(2e9));
  CHECK(fits.node[0].provenance == "measured");
  fits = fit_comm_results(scatter, "t");
  CHECK(fits.node.at(0).segments.at(0).bandwidth == doctest::Approx(4e9));
  CHECK(fits.node.at(0).provenance == "measured");
  fits = fit_comm_results(library, "t");
  CHECK(fits.node.empty());
  CHECK(mentions(fits.notes, "MPI library's own call"));
  fits = fit_comm_results(one_way, "t");
  CHECK(fits.node.at(0).provenance == "guess");
  CHECK(mentions(fits.notes, "the way ring alone"));
  fits = fit_comm_results(noise + scatter, "t");
  REQUIRE(fits.node.size() == 2);
  CHECK(fits.node[1].kind == "send");
  CHECK(fits.node[1].provenance == "guess");
  CHECK(mentions(fits.notes, "miss the times by too much"));
  CHECK(plainest(fits.node)->kind == "reduce_scatter");  // a measurement before a guess
  std::string rows = scatter.substr(0, scatter.size() - 1);
  for (size_t at = 0; (at = rows.find('\n', at)) != std::string::npos;) rows[at] = ',';
  fits = fit_comm_results("{\"bench\":\"comm\",\"quiet\":false,\"details\":{\"rows\":[" + rows + "]}}", "t");
  CHECK(fits.node.at(0).provenance == "guess");
  CHECK(mentions(fits.notes, "not quiet"));
}

TEST_CASE("comm results that are none") {
  const auto refusal = [](const std::string& text) {
    try {
      fit_comm_results(text, "c.json");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::input);
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string rest = "\"way\":\"auto\",\"memory\":\"shared\",\"ranks\":2,\"nodes\":1";
  CHECK(refusal("").find("c.json: expected timings") == 0);
  CHECK(refusal("[]\n").find("c.json:1: ") == 0);
  CHECK(refusal("\n{\"op\":").find("c.json:2") == 0);
  CHECK(refusal("{\"op\": \"all_reduce\"}").find("ranks") != std::string::npos);
  CHECK(refusal("{\"bench\": \"kernels\"}").find("dbench kernels") != std::string::npos);
  CHECK(refusal("{\"bench\": \"comm\",\n \"details\": {}}").find("details.rows") != std::string::npos);
  CHECK(refusal("{\"bench\": \"comm\", \"details\": {\"rows\": [3]}}").find("details.rows[0]") != std::string::npos);
  CHECK(refusal("{\"bench\": \"comm\", \"details\": {\"rows\": []}}").find("found none") != std::string::npos);
  CHECK(refusal(comm_line("send_recv", 1, 1, rest + ",\"wrong\":3")).find("3 elements") != std::string::npos);
  CHECK(refusal(comm_line("send_recv", 1, -1, rest)).find("above 0") != std::string::npos);
  CHECK(refusal(comm_line("send_recv", 1, 1, "\"way\":\"auto\",\"ranks\":2,\"nodes\":3")).find("2 on 3") !=
        std::string::npos);
}

std::string kernel_op(const char* op, const char* type, double gflop, double gb, bool quiet = true) {
  return fmt::format("{{\"op\":\"{}\",\"type\":\"{}\",\"gflop_per_s\":{},\"gb_per_s\":{},\"quiet\":{}}}", op, type,
                     gflop, gb, quiet);
}
std::string kernels_record(const std::vector<std::string>& ops, const std::string& peak_f32 = "100") {
  std::string all;
  for (const std::string& op : ops) all += (all.empty() ? "" : ",") + op;
  return fmt::format(
      "{{\"bench\":\"kernels\",\"details\":{{\"peaks\":{{\"peak_gflop_per_s\":{{\"f32\":{},\"bf16\":1000}},"
      "\"copy_gb_per_s\":20}},\"ops\":[{}]}}}}\n",
      peak_f32, all);
}

TEST_CASE("fractions from what dbench kernels measured") {
  const std::string text =
      kernels_record({kernel_op("gemm qkv", "f32", 70, 1), kernel_op("gemm up", "f32", 80, 1),
                      kernel_op("gemm up", "bf16", 400, 1), kernel_op("gemm up", "bf16", 900, 1, false),
                      kernel_op("gemm_pack up", "f32", 0, 1), kernel_op("attention_fwd", "f32", 25, 1),
                      kernel_op("paged_attention", "f32", 90, 1), kernel_op("rms_norm_fwd", "f32", 1, 10),
                      kernel_op("swiglu_fwd", "bf16", 1, 14), kernel_op("adamw", "f32", 1, 90)});
  const KernelFractions f = read_kernel_results(text, "k.json");
  CHECK(f.gemm == doctest::Approx((0.8 + 0.4) / 2));
  CHECK(f.attention == doctest::Approx(0.25));
  CHECK(f.memory == doctest::Approx(0.7));
  CHECK(mentions(f.notes, "1 ops ran while others"));
  Discovered found = cpu_cluster(some_cpu());
  take_fractions(found, f);
  CHECK(found.cluster.devices[0].gemm_fraction == doctest::Approx(0.6));
  CHECK(found.cluster.devices[0].provenance == "measured");
  CHECK(parse_cluster_spec(discovered_toml(found), "") == found.cluster);
  KernelFractions of_gpu = f;
  of_gpu.backend = "cuda:0 (NVIDIA H200)";
  CHECK_THROWS_WITH_AS(take_fractions(found, of_gpu),
                       doctest::Contains("on this host's CPUs, found a record of cuda:0 (NVIDIA H200)"), Error);
  const KernelFractions none = read_kernel_results(kernels_record({}), "k.json");
  take_fractions(found, none);
  CHECK(found.cluster.devices[0].gemm_fraction == doctest::Approx(0.6));
  CHECK(read_kernel_results(kernels_record({kernel_op("adamw", "f32", 1, 90)}), "k").memory == 1);
  for (const std::string& bad :
       {std::string(), std::string("{}\n"), std::string("3\n"), std::string(R"({"details":3})"),
        std::string(R"({"details":{"peaks":{},"ops":[]}})"), kernels_record({"{}"}), kernels_record({"7"}),
        kernels_record({kernel_op("gemm up", "f16", 1, 1)}), kernels_record({}, "0")})
    CHECK_THROWS_AS(read_kernel_results(bad, "k.json"), Error);
}

}  // namespace
}  // namespace rw
