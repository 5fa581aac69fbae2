// The checks of dbench preflight: a healthy job passes them all; each planted fault is found by its check and by no
// other.
#include "libcore/bench/preflight/checks.h"

#include <doctest/doctest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/bench/preflight/job_facts.h"

using namespace rw;

namespace {

struct Planted {
  const char* name;
  std::function<void(JobFacts&)> plant;
  const char* id;  // of the one check that finds it
  CheckStatus status;
  std::vector<int64_t> ranks;
  const char* found;  // in the words of the finding
};

// Both ranks of a host.
auto on_host(const char* host, const std::function<void(RankFacts&)>& change) {
  return [=](JobFacts& job) {
    for (RankFacts& f : job.ranks)
      if (f.host == host) change(f);
  };
}
auto on_rank(size_t rank, const std::function<void(RankFacts&)>& change) {
  return [=](JobFacts& job) { change(job.ranks.at(rank)); };
}
std::function<void(JobFacts&)> on_pair(int a, int b, const std::function<void(PairSpeed&)>& change) {
  return [=](JobFacts& job) {
    for (PairSpeed& p : job.pairs)
      if (p.a == a && p.b == b) change(p);
  };
}
void set_mtu(RankFacts& f, const std::string& name, int64_t mtu) {
  for (InterfaceFacts& i : f.interfaces)
    if (i.name == name) i.mtu = mtu;
}

const Planted kPlanted[] = {
    {"another binary",
     on_rank(3, [](RankFacts& f) { f.binary = "ffffffffffffffff"; }),
     "software.binary",
     CheckStatus::fail,
     {3},
     "rank 3 (h2) has ffffffffffffffff"},
    {"another MPI",
     on_host("h2", [](RankFacts& f) { f.versions["MPI"] = "Open MPI v5.0.1"; }),
     "software.versions",
     CheckStatus::fail,
     {2, 3},
     "Open MPI v5.0.1"},
    {"another compiler",
     on_host("h2", [](RankFacts& f) { f.versions["compiler"] = "g++ 13.1"; }),
     "software.versions",
     CheckStatus::warn,
     {2, 3},
     "g++ 13.1"},
    {"a variable that differs",
     on_rank(1, [](RankFacts& f) { f.environment["OMP_NUM_THREADS"] = "2"; }),
     "software.environment",
     CheckStatus::warn,
     {1},
     "OMP_NUM_THREADS: rank 1 (h1) has 2; the others 4"},
    {"a variable that one lacks",
     on_rank(2, [](RankFacts& f) { f.environment.erase("OMP_NUM_THREADS"); }),
     "software.environment",
     CheckStatus::warn,
     {2},
     "(not set)"},
    {"a variable that one alone has",
     on_rank(0, [](RankFacts& f) { f.environment["NCCL_DEBUG"] = "INFO"; }),
     "software.environment",
     CheckStatus::warn,
     {0},
     "NCCL_DEBUG: rank 0 (h1) has INFO; the others (not set)"},
    {"a clock 80 ms off",
     on_host("h2", [](RankFacts& f) { f.clock_offset_s = -0.080; }),
     "network.clock_skew",
     CheckStatus::warn,
     {2, 3},
     "-80.0 ms"},
    {"its own name at 127.0.1.1",
     on_host("h2", [](RankFacts& f) { f.addresses["h2"] = "127.0.1.1"; }),
     "network.host_names",
     CheckStatus::warn,
     {2},
     "h2 at 127.0.1.1"},
    {"another's name at 127.0.0.1",
     on_host("h2", [](RankFacts& f) { f.addresses["h1"] = "127.0.0.1"; }),
     "network.host_names",
     CheckStatus::fail,
     {2},
     "h1 at 127.0.0.1"},
    {"a name without an address",
     on_host("h1", [](RankFacts& f) { f.addresses["h2"] = ""; }),
     "network.host_names",
     CheckStatus::fail,
     {0},
     "no address for h2"},
    {"MPI through docker0",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) f.environment["OMPI_MCA_btl_tcp_if_include"] = "docker0";
     },
     "network.interface",
     CheckStatus::warn,
     {0, 1, 2, 3},
     "is docker0"},
    {"NCCL through an interface that is not there",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) f.environment["NCCL_SOCKET_IFNAME"] = "ib0";
     },
     "network.interface",
     CheckStatus::fail,
     {0, 1, 2, 3},
     "no interface ib0"},
    {"MPI beside the default route",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) {
         f.interfaces.push_back({"eth1", 9000, true});
         f.environment["OMPI_MCA_btl_tcp_if_include"] = "eth1,eth0";
         f.environment["NCCL_SOCKET_IFNAME"] = "=eth1";
       }
     },
     "network.interface",
     CheckStatus::warn,
     {0, 1, 2, 3},
     "is eth1, the default route eth0"},
    {"an MTU of 1500 beside 9000",
     on_host("h2", [](RankFacts& f) { set_mtu(f, "eth0", 1500); }),
     "network.mtu",
     CheckStatus::fail,
     {2, 3},
     "MTU of the default route: rank 2 (h2) has 1500"},
    {"another congestion control",
     on_host("h2", [](RankFacts& f) { f.tcp["congestion_control"] = "bbr"; }),
     "network.tcp",
     CheckStatus::warn,
     {2, 3},
     "bbr"},
    {"small socket buffers",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) f.tcp["tcp_rmem"] = "4096 131072 212992";
     },
     "network.tcp",
     CheckStatus::warn,
     {0, 2},
     "up to 212992 bytes"},
    {"a link with errors",
     on_host("h2", [](RankFacts& f) { f.link_counters["mlx5_0/1 link_downed"] = 101; }),
     "network.counters",
     CheckStatus::warn,
     {2},
     "mlx5_0/1 link_downed 101"},
    {"a pair that did not talk",
     [](JobFacts& job) { job.pairs.erase(job.pairs.begin() + 2); },
     "network.reach",
     CheckStatus::fail,
     {0, 3},
     "rank 0 (h1) and rank 3 (h2) did not"},
    {"too little memory",
     on_host("h2", [](RankFacts& f) { f.memory_available = int64_t{1} << 30; }),
     "resources.memory",
     CheckStatus::fail,
     {2},
     "h2 has 1.0 GiB free for 2 ranks"},
    {"a container's /dev/shm",
     on_host("h2", [](RankFacts& f) { f.shm_free = 64 << 20; }),
     "resources.shm",
     CheckStatus::warn,
     {2},
     "h2 has 64.0 MiB"},
    {"no /dev/shm to speak of",
     on_host("h1", [](RankFacts& f) { f.shm_free = 1 << 20; }),
     "resources.shm",
     CheckStatus::fail,
     {0},
     "h1 has 1.0 MiB"},
    {"little memory to lock",
     on_host("h1", [](RankFacts& f) { f.memlock_bytes = 64 << 10; }),
     "resources.memlock",
     CheckStatus::warn,
     {0},
     "h1 has 64.0 KiB"},
    {"few files",
     on_host("h1", [](RankFacts& f) { f.open_files = 256; }),
     "resources.open_files",
     CheckStatus::warn,
     {0},
     "h1 has 256"},
    {"few processes",
     on_host("h1", [](RankFacts& f) { f.processes = 100; }),
     "resources.processes",
     CheckStatus::fail,
     {0},
     "h1 has 100"},
    {"a full disk",
     on_host("h2", [](RankFacts& f) { f.disk_free = 1 << 20; }),
     "resources.disk",
     CheckStatus::fail,
     {2},
     "1.0 MiB free in /data"},
    {"a disk that cannot be written",
     on_rank(2, [](RankFacts& f) { f.disk_error = "Read-only file system", f.disk_mb_per_s = kUnknown; }),
     "resources.disk",
     CheckStatus::fail,
     {2},
     "Read-only file system"},
    {"a slow disk",
     on_rank(2, [](RankFacts& f) { f.disk_mb_per_s = 3; }),
     "resources.disk_speed",
     CheckStatus::warn,
     {2},
     "h2 writes 3 MB/s"},
    {"cores that overlap",
     on_rank(1,
             [](RankFacts& f) {
               f.cores = {3, 4, 5, 6};
             }),
     "resources.cores",
     CheckStatus::warn,
     {0, 1},
     "2 ranks with 8 threads share 7 cores"},
    {"a quota",
     on_host("h2", [](RankFacts& f) { f.quota_cores = 1.5; }),
     "resources.quota",
     CheckStatus::warn,
     {2},
     "1.5 cores for 2 ranks"},
    {"a governor that saves",
     on_host("h2", [](RankFacts& f) { f.governor = "powersave"; }),
     "resources.governor",
     CheckStatus::warn,
     {2, 3},
     "h2: powersave"},
    {"a busy host",
     on_host("h2", [](RankFacts& f) { f.load = 7.5; }),
     "resources.load",
     CheckStatus::warn,
     {2},
     "load 7.50 on 8 cores"},
    {"stolen time",
     on_host("h2", [](RankFacts& f) { f.steal = 0.1; }),
     "resources.steal",
     CheckStatus::warn,
     {2},
     "10.0 % stolen"},
    {"another GPU",
     on_host("h2", [](RankFacts& f) { f.gpus[1].name = "NVIDIA A100"; }),
     "resources.gpus",
     CheckStatus::fail,
     {2, 3},
     "1 x NVIDIA A100"},
    {"more ranks than GPUs",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) f.gpus.pop_back(), f.bus_gpus.pop_back(), f.topology.gpus.clear();
     },
     "resources.gpu_ranks",
     CheckStatus::warn,
     {1, 3},
     "h1: 1 GPU for 2 ranks: none for rank 1"},
    {"GPUs without a driver, everywhere",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) {
         f.gpus.clear();
         for (BusGpu& g : f.bus_gpus) g.driver = "";
         f.topology.gpus[0].gpus[1] = f.topology.gpus[1].gpus[0] = "SYS", f.topology.knows_nvlink = false;
       }
     },
     "resources.gpu_driver",
     CheckStatus::warn,
     {0, 2},
     "h1: 2 x GH100 [H100 SXM5 80GB] at 0000:1b:00.0, 0000:9b:00.0: no kernel driver has taken them; h2: 2 x"},
    {"one GPU of three that has no driver",
     on_host("h2",
             [](RankFacts& f) {
               f.bus_gpus.push_back({"0000:c1:00.0", "GA102", "nouveau"});
             }),
     "resources.gpu_driver",
     CheckStatus::warn,
     {2},
     "h2: 1 x GA102 at 0000:c1:00.0: the driver nouveau"},
    {"memory errors of a GPU",
     on_host("h1", [](RankFacts& f) { f.gpus[1].ecc_errors = 2; }),
     "resources.gpu_state",
     CheckStatus::fail,
     {0},
     "GPU 1 has 2 uncorrected"},
    {"a hot GPU",
     on_host("h1", [](RankFacts& f) { f.gpus[0].temperature = 91; }),
     "resources.gpu_state",
     CheckStatus::warn,
     {0},
     "GPU 0 is at 91 C"},
    {"a link that is down on one host",
     on_host("h2", [](RankFacts& f) { f.topology.gpus[0].gpus[1] = f.topology.gpus[1].gpus[0] = "NV17"; }),
     "resources.gpu_links",
     CheckStatus::warn,
     {2, 3},
     "NV17 between all"},
    {"a rank far from its GPU",
     on_rank(1,
             [](RankFacts& f) {
               f.topology.gpus[1].cores = {8, 9};
             }),
     "resources.gpu_cores",
     CheckStatus::warn,
     {1},
     "rank 1 (h1) runs on cores from 4 on, GPU 1 is near those from 8 on"},
    {"one card named for ranks of both sockets",
     [](JobFacts& job) {
       for (RankFacts& f : job.ranks) f.environment["UCX_NET_DEVICES"] = "mlx5_0:1,eth0";
     },
     "resources.nic_cores",
     CheckStatus::warn,
     {1, 3},
     "rank 1 (h1) has UCX_NET_DEVICES=mlx5_0:1,eth0, but mlx5_1 is near its cores; rank 3"},
    {"a late pair",
     on_pair(1, 2, [](PairSpeed& p) { p.latency_us = 40; }),
     "speed.pair_latency",
     CheckStatus::warn,
     {1, 2},
     "40 us, 3.3 times the median"},
    {"a pair with a third of the bandwidth",
     on_pair(0, 3, [](PairSpeed& p) { p.gb_s = 1; }),
     "speed.pair_bandwidth",
     CheckStatus::fail,
     {0, 3},
     "33 % of the median"},
    {"a pair with three quarters",
     on_pair(0, 3, [](PairSpeed& p) { p.gb_s = 2.25; }),
     "speed.pair_bandwidth",
     CheckStatus::warn,
     {0, 3},
     "75 % of the median"},
    {"a rank 30 % slower",
     on_rank(3, [](RankFacts& f) { f.gemm_gflop_per_s = 70; }),
     "speed.gemm",
     CheckStatus::warn,
     {3},
     "rank 3 (h2): 70 GFLOP/s"},
    {"a rank at half the speed",
     on_rank(3, [](RankFacts& f) { f.gemm_gflop_per_s = 50; }),
     "speed.gemm",
     CheckStatus::fail,
     {3},
     "rank 3 (h2): 50 GFLOP/s"},
};

}  // namespace

TEST_CASE("a healthy job passes every check") {
  const auto results = run_checks(healthy_job(), {});
  CHECK(results.size() == 32);
  std::set<std::string> ids;
  for (const CheckResult& r : results) {
    CAPTURE(r.id);
    CAPTURE(r.found);
    CHECK(ids.insert(r.id).second);
    CHECK(r.id.starts_with(r.layer + "."));
    CHECK(r.status == CheckStatus::pass);
    CHECK(r.ranks.empty());
    CHECK_FALSE(r.found.empty());
    CHECK_FALSE(r.expected.empty());
    CHECK(r.fix.empty());
  }
  CHECK(worst_status(results) == CheckStatus::pass);
}

TEST_CASE("each planted fault is found by its check and by no other") {
  for (const Planted& p : kPlanted) {
    CAPTURE(p.name);
    JobFacts job = healthy_job();
    p.plant(job);
    int n = 0;
    for (const CheckResult& r : run_checks(job, {})) {
      if (r.status == CheckStatus::pass) continue;
      ++n;
      CAPTURE(r.found);
      CHECK(r.id == p.id);
      CHECK(r.status == p.status);
      CHECK(r.ranks == p.ranks);
      CHECK(r.found.find(p.found) != std::string::npos);
      CHECK_FALSE(r.fix.empty());
    }
    CHECK(n == 1);
    // The same from the JSON that ranks exchange.
    for (RankFacts& f : job.ranks) f = parse_rank_facts(rank_facts_json(f), "test");
    int again = 0;
    for (const CheckResult& r : run_checks(job, {})) again += r.status != CheckStatus::pass;
    CHECK(again == 1);
  }
}

TEST_CASE("several slow pairs with one rank in common name it") {
  JobFacts job = healthy_job();
  for (PairSpeed& p : job.pairs)
    if (p.b == 3 && !p.same_node) p.gb_s = 0.9;
  // Two of the four pairs between the hosts are slow: the median, 1.95, lies between.
  const auto results = speed_checks(job, {});
  CHECK(results[1].status == CheckStatus::fail);
  CHECK(results[1].found.find("rank 3 (h2) is in all of them") != std::string::npos);
}

TEST_CASE("a pair that is alone of its kind is not held against itself") {
  JobFacts job = healthy_job();
  job.ranks.resize(2);
  job.pairs.resize(1);
  REQUIRE(job.pairs[0].same_node);
  job.pairs[0].gb_s = 7;
  CheckResult r = speed_checks(job, {})[1];
  CHECK(r.status == CheckStatus::pass);
  CHECK(r.found.find("nothing to compare it with") != std::string::npos);
  job.pairs[0].gb_s = 0.474;
  r = speed_checks(job, {})[1];
  CHECK(r.status == CheckStatus::warn);
  CHECK(r.found.find("0.474 GB/s, the only pair within a node") != std::string::npos);
}

TEST_CASE("one host: nothing of the network between hosts is asked") {
  JobFacts job = healthy_job();
  job.ranks.resize(2);
  job.pairs.resize(1);
  for (RankFacts& f : job.ranks) {
    f.addresses = {{"h1", "127.0.1.1"}};
    f.environment["OMPI_MCA_btl_tcp_if_include"] = "lo";
    f.tcp["tcp_rmem"] = "4096 4096 4096";
    f.link_counters["eth0 rx_errors"] = 1 << 20;
  }
  for (const CheckResult& r : run_checks(job, {})) {
    CAPTURE(r.id);
    CHECK(r.status == CheckStatus::pass);
  }
}

TEST_CASE("ranks that know nothing are no reason to fail") {
  JobFacts job;
  job.ranks.resize(1);
  job.ranks[0].host = "here";
  for (const CheckResult& r : run_checks(job, {})) {
    CAPTURE(r.id);
    CHECK(r.status == CheckStatus::pass);
    CHECK_FALSE(r.found.empty());
  }
}

TEST_CASE("thresholds are flags; the table and the JSON tell all") {
  PreflightNeeds needs;
  for (const Field& field : fields(needs))
    if (field.name == "min-memory") set_field(field, "40G", "--");
  const auto results = run_checks(healthy_job(), needs);
  CHECK(worst_status(results) == CheckStatus::fail);
  const std::string text = checks_text(results);
  CHECK(text.find("fail  resources.memory") != std::string::npos);
  CHECK(text.find("31 passed, 0 warned, 1 failed") != std::string::npos);
  const Json json = checks_json(results);
  REQUIRE(json.size() == 32);
  for (const Json& check : json)
    if (check["id"] == "resources.memory") {
      CHECK(check["status"] == "fail");
      CHECK(check["ranks"] == Json({0, 2}));
    }
}
