// A healthy job of two hosts with two ranks each, made up: tests plant one fault in it.
#pragma once
#include "libcore/bench/preflight/checks.h"

namespace rw {

inline RankFacts healthy_rank(int64_t rank) {
  RankFacts f;
  f.rank = rank;
  f.host = rank < 2 ? "h1" : "h2";
  f.binary = "00112233445566aa";
  f.versions = {{"MPI", "Open MPI v4.1.4"}, {"HDF5", "1.10.8"}, {"compiler", "g++ 12.2"}};
  f.environment = {{"OMP_NUM_THREADS", "4"}, {"NCCL_SOCKET_IFNAME", "eth0"}, {"OMPI_MCA_btl_tcp_if_include", "eth0"}};
  f.clock_offset_s = rank < 2 ? 0 : 0.003, f.round_trip_s = 40e-6;
  f.addresses = {{"h1", "10.0.0.1"}, {"h2", "10.0.0.2"}};
  f.interfaces = {{"docker0", 1500, true}, {"eth0", 9000, true}, {"lo", 65536, true}};
  f.default_interface = "eth0";
  f.tcp = {{"congestion_control", "cubic"}, {"tcp_rmem", "4096 131072 6291456"}, {"tcp_wmem", "4096 16384 4194304"}};
  f.link_counters = {{"eth0 rx_errors", 3}, {"mlx5_0/1 link_downed", 1}};
  f.open_files = 65536, f.processes = 100000;
  f.memory_available = int64_t{64} << 30, f.shm_free = int64_t{8} << 30, f.disk_free = int64_t{500} << 30;
  f.disk_dir = "/data", f.disk_mb_per_s = rank % 2 == 0 ? 900 : kUnknown;
  f.cores = rank % 2 == 0 ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{4, 5, 6, 7};
  f.host_cores = 8, f.threads = 4;
  f.governor = "performance", f.huge_pages = "madvise";
  f.load = 0.1, f.steal = 0, f.has_rdma = true;
  GpuState gpu{.name = "NVIDIA H100 80GB HBM3", .memory = int64_t{80} << 30};
  gpu.clock_mhz = 1980, gpu.ecc_errors = 0, gpu.temperature = 40;
  for (const char* bus_id : {"0000:1b:00.0", "0000:9b:00.0"}) {
    gpu.bus_id = bus_id;
    f.gpus.push_back(gpu);
    f.bus_gpus.push_back({.bus_id = bus_id, .name = "GH100 [H100 SXM5 80GB]", .driver = "nvidia"});
  }
  f.topology = {.gpus = {{.gpus = {"X", "NV18"}, .nics = {"PIX", "SYS"}, .cores = {0, 1, 2, 3}, .numa_node = 0},
                         {.gpus = {"NV18", "X"}, .nics = {"SYS", "PIX"}, .cores = {4, 5, 6, 7}, .numa_node = 1}},
                .nics = {"mlx5_0", "mlx5_1"},
                .nic_cores = {{0, 1, 2, 3}, {4, 5, 6, 7}}};
  f.gemm_gflop_per_s = 100 + static_cast<double>(rank);
  return f;
}

inline JobFacts healthy_job() {
  JobFacts job;
  for (int64_t r = 0; r < 4; ++r) job.ranks.push_back(healthy_rank(r));
  for (int a = 0; a < 4; ++a)
    for (int b = a + 1; b < 4; ++b) {
      PairSpeed p{.a = a, .b = b, .latencies_us = {}, .times_us = {}};
      p.same_node = a / 2 == b / 2;
      p.latency_us = p.same_node ? 1 : 12, p.gb_s = p.same_node ? 10 : 3;
      job.pairs.push_back(p);
    }
  return job;
}

}  // namespace rw
