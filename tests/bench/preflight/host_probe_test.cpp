// What hosts say of themselves: folders of fixed texts in the place of /proc and /sys, lines of nvidia-smi, variables.
#include "libcore/bench/preflight/host_probe.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "libcore/bench/preflight/preflight.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {

class Root {
 public:
  Root() : path_(fs::temp_directory_path() / ("preflight_test_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
  }
  ~Root() { fs::remove_all(path_); }
  void put(const std::string& file, const std::string& text) const {
    fs::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

TEST_CASE("a host in full") {
  const Root root;
  root.put("sys/class/net/eth0/mtu", "9000\n");
  root.put("sys/class/net/eth0/operstate", "up\n");
  root.put("sys/class/net/eth0/statistics/rx_errors", "7\n");
  root.put("sys/class/net/lo/mtu", "65536\n");
  root.put("sys/class/net/lo/operstate", "unknown\n");
  root.put("sys/class/net/lo/statistics/rx_errors", "1\n");
  root.put("sys/class/net/eth1/mtu", "1500\n");
  root.put("sys/class/net/eth1/operstate", "down\n");
  root.put("sys/class/net/bonding_masters", "bond0\n");
  root.put("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", "2\n");
  root.put("sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence", "5\n");
  root.put("proc/net/route",
           "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
           "eth1\t00000000\t010200C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n"
           "eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
           "docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n");
  root.put("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n");
  root.put("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
  root.put("proc/sys/net/core/rmem_max", "212992\n");
  root.put("sys/fs/cgroup/cpu.max", "150000 100000\n");
  root.put("proc/self/cgroup", "0::/job/7\n");
  root.put("sys/fs/cgroup/job/7/cpu.max", "max 100000\n");
  root.put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  root.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  root.put("proc/loadavg", "3.25 2.00 1.00 2/345 678\n");
  root.put("proc/stat", "cpu  10 0 10 100 0 0 0 5 0 0\ncpu0 5 0 5 50 0 0 0 3 0 0\ncpu1 5 0 5 50 0 0 0 2 0 0\n");
  root.put("proc/meminfo", "MemTotal: 8000 kB\nMemFree: 10 kB\nMemAvailable: 4000 kB\n");
  root.put("sys/fs/cgroup/memory.max", "3000000\n");
  root.put("sys/fs/cgroup/memory.current", "1000000\n");
  RankFacts f;
  read_host(root.path(), f);
  REQUIRE(f.interfaces.size() == 3);
  CHECK(f.interfaces[0].name == "eth0");
  CHECK(f.interfaces[0].mtu == 9000);
  CHECK(f.interfaces[0].is_up);
  CHECK_FALSE(f.interfaces[1].is_up);
  CHECK(f.default_interface == "eth0");
  CHECK(f.link_counters == std::map<std::string, int64_t>{
                               {"eth0 rx_errors", 7}, {"mlx5_0/1 link_downed", 2}, {"mlx5_0/1 out_of_sequence", 5}});
  CHECK(f.has_rdma);
  CHECK(f.tcp == std::map<std::string, std::string>{
                     {"congestion_control", "bbr"}, {"rmem_max", "212992"}, {"tcp_rmem", "4096 131072 6291456"}});
  CHECK(f.quota_cores == 1.5);
  CHECK(f.governor == "powersave");
  CHECK(f.huge_pages == "madvise");
  CHECK(f.load == 3.25);
  CHECK(f.host_cores == 2);
  CHECK(f.memory_available == 2000000);  // what the container's limit leaves is less than the host's 4000 KiB
}

TEST_CASE("a host that says nothing, or nonsense") {
  const Root root;
  RankFacts f;
  read_host(root.path(), f);
  CHECK(f.interfaces.empty());
  CHECK(f.default_interface.empty());
  CHECK(f.tcp.empty());
  CHECK(std::isnan(f.quota_cores));
  CHECK(std::isnan(f.load));
  CHECK(f.memory_available == -1);
  CHECK_FALSE(f.has_rdma);
  root.put("sys/class/net/eth0/mtu", "many\n");
  root.put("proc/net/route", "eth0 00000000\n\n\t\n");
  root.put("sys/fs/cgroup/cpu.max", "max\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  root.put("proc/loadavg", "soon\n");
  root.put("sys/kernel/mm/transparent_hugepage/enabled", "] always [\n");
  read_host(root.path(), f);
  CHECK(f.interfaces.empty());
  CHECK(f.default_interface.empty());
  CHECK(std::isnan(f.quota_cores));
  CHECK(std::isnan(f.load));
  CHECK(f.huge_pages.empty());
}

TEST_CASE("variables that matter, without the launcher's") {
  const auto kept = relevant_environment({"OMP_NUM_THREADS=4", "OMPI_MCA_btl=tcp,self", "OMPI_MCA_orte_ess_node_rank=1",
                                          "OMPI_MCA_ess_base_vpid=3", "NCCL_DEBUG=", "CUDA_VISIBLE_DEVICES=0",
                                          "CUDA_LAUNCH_BLOCKING=1", "HOME=/root", "RANKWRIGHT_CONFIGS=a=b", "OMP_X"});
  CHECK(kept == std::map<std::string, std::string>{{"CUDA_LAUNCH_BLOCKING", "1"},
                                                   {"NCCL_DEBUG", ""},
                                                   {"OMPI_MCA_btl", "tcp,self"},
                                                   {"OMP_NUM_THREADS", "4"},
                                                   {"RANKWRIGHT_CONFIGS", "a=b"}});
}

TEST_CASE("what nvidia-smi prints") {
  const auto gpus = parse_gpu_states(
      "NVIDIA H100 80GB HBM3, 81559, 1980, 0, 34\n"
      "NVIDIA GeForce RTX 4090, 24564, 3105, [N/A], 51\r\n"
      "No devices were found\n, 5, 5, 5, 5\nX, none, 1, 1, 1\n\n");
  REQUIRE(gpus.size() == 2);
  CHECK(gpus[0].name == "NVIDIA H100 80GB HBM3");
  CHECK(gpus[0].memory == int64_t{81559} << 20);
  CHECK(gpus[0].clock_mhz == 1980);
  CHECK(gpus[0].ecc_errors == 0);
  CHECK(std::isnan(gpus[1].ecc_errors));
  CHECK(gpus[1].temperature == 51);
  CHECK(gpus[0].bus_id.empty());
  CHECK(parse_gpu_states("").empty());
  const auto placed = parse_gpu_states("NVIDIA L40S, 46068, 2520, 0, 30, 00000000:1B:00.0\nX, 5, 1, 0, 30, N/A, 7\n");
  REQUIRE(placed.size() == 1);
  CHECK(placed[0].bus_id == "0000:1b:00.0");
  CHECK(placed[0].temperature == 30);
}

TEST_CASE("stolen time is a share of all") {
  // 100 ticks, 25 of them stolen.
  CHECK(steal_share("cpu  10 0 10 100 0 0 0 5 0 0\n", "cpu  50 0 20 125 0 0 0 30 0 0\n") == 0.25);
  CHECK(std::isnan(steal_share("cpu  10 0 10 100 0 0 0 5 0 0\n", "cpu  10 0 10 101 0 0 0 5 0 0\n")));  // one tick
  CHECK(std::isnan(steal_share("", "cpu  1 1 1 1 1 1 1 1\n")));
}

TEST_CASE("this process, its disk and its name") {
  RankFacts f;
  f.host = "here";
  read_process(f);
  CHECK(f.binary.size() == 16);
  CHECK_FALSE(f.versions["HDF5"].empty());
  CHECK_FALSE(f.versions["MPI"].empty());
  CHECK_FALSE(f.cores.empty());
  const Root root;
  try_disk((root.path() / "deep" / "out").string(), f);
  CHECK(f.disk_error.empty());
  CHECK(f.disk_mb_per_s > 0);
  CHECK(fs::is_empty(root.path() / "deep" / "out"));
  RankFacts g;
  try_disk("/proc/nowhere", g);
  CHECK_FALSE(g.disk_error.empty());
  CHECK(std::isnan(g.disk_mb_per_s));
  const auto found = resolve_hosts({"localhost", "no-such-host.invalid", "localhost"}, 20);
  REQUIRE(found.size() == 2);
  CHECK((found.at("localhost") == "127.0.0.1" || found.at("localhost") == "::1"));
  CHECK(found.at("no-such-host.invalid").empty());
}

TEST_CASE("clocks of threads are one clock; facts are gathered on all ranks") {
  const Root root;
  run_thread_ranks(3, [&](Comm& comm) {
    const ClockOffset clock = measure_clock(comm);
    if (std::abs(clock.offset_s) > 0.05 + clock.round_trip_s || (comm.rank() > 0) != (clock.round_trip_s > 0))
      throw std::runtime_error("one clock is expected not to differ from itself");
    PreflightSpec spec;
    spec.out = root.path().string(), spec.seconds = 0.01, spec.pair_bytes = 1000;
    const JobFacts job = gather_facts(comm, spec);
    if (job.ranks.size() != 3 || job.pairs.size() != 3 || job.ranks[2].rank != 2)
      throw std::runtime_error("facts of all ranks are expected");
    for (const RankFacts& f : job.ranks)
      if (!(f.gemm_gflop_per_s > 0) || f.binary != job.ranks[0].binary)
        throw std::runtime_error("a rank without facts");
  });
}
