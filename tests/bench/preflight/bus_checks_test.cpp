// What dbench preflight makes of the PCI bus, beside the faults that checks_test.cpp plants.
#include <doctest/doctest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/preflight/checks.h"
#include "tests/bench/preflight/job_facts.h"

using namespace rw;

TEST_CASE("GPUs of the bus that nvidia-smi does not list are no fault where others may have them") {
  JobFacts job = healthy_job();
  for (RankFacts& f : job.ranks) {
    f.bus_gpus.push_back({"0000:c1:00.0", "GH100", "nvidia"});    // outside of this container
    f.bus_gpus.push_back({"0000:c2:00.0", "GH100", "vfio-pci"});  // of a virtual machine
  }
  CHECK(worst_status(gpu_checks(job)) == CheckStatus::pass);
  for (RankFacts& f : job.ranks) f.bus_gpus.push_back({"0000:c3:00.0", "GH100", ""});
  CHECK(worst_status(gpu_checks(job)) == CheckStatus::warn);
  for (RankFacts& f : job.ranks) f.gpus[0].bus_id = "";  // an old nvidia-smi: which it lists is not known
  CHECK(worst_status(gpu_checks(job)) == CheckStatus::pass);
}

TEST_CASE("a nvidia-smi that hangs is a fault, with or without GPUs on the bus") {
  for (const bool has_bus : {true, false}) {
    JobFacts job = healthy_job();
    for (RankFacts& f : job.ranks) {
      f.gpus.clear();
      f.topology = {};
      if (!has_bus) f.bus_gpus.clear();
      f.smi_is_late = f.rank == 0;
    }
    const std::vector<CheckResult> results = gpu_checks(job);
    const auto driver = std::find_if(results.begin(), results.end(),
                                     [](const CheckResult& c) { return c.id == "resources.gpu_driver"; });
    REQUIRE(driver != results.end());
    CHECK(driver->status == CheckStatus::fail);
    CHECK(driver->found.find("had not answered after 20 seconds") != std::string::npos);
    CHECK(driver->fix.find("Xid") != std::string::npos);
  }
}

TEST_CASE("what the bus tells survives the way to the other ranks") {
  RankFacts f = healthy_rank(1);
  f.topology.knows_nvlink = false;
  f.bus_gpus[1].driver = "nouveau";
  f.smi_is_late = true;
  const RankFacts back = parse_rank_facts(rank_facts_json(f), "test");
  CHECK(back.topology == f.topology);
  CHECK(back.bus_gpus == f.bus_gpus);
  CHECK(back.gpus == f.gpus);
  CHECK(back.smi_is_late);
  f.topology.nic_cores.pop_back();
  CHECK_THROWS_WITH_AS(parse_rank_facts(rank_facts_json(f), "test"),
                       doctest::Contains("the cores of each of 2 NICs, found those of 1"), Error);
}

TEST_CASE("cards that a variable names") {
  const auto ranks = [](const char* variable, const char* value) {
    JobFacts job = healthy_job();
    for (RankFacts& f : job.ranks) {
      f.topology.nics.push_back("mlx5_10");
      f.topology.nic_cores.push_back({8, 9});
      f.environment[variable] = value;
    }
    return nic_checks(job).at(0).ranks;
  };
  using Ranks = std::vector<int64_t>;
  CHECK(ranks("NCCL_IB_HCA", "mlx5_0") == Ranks{1, 3});
  CHECK(ranks("NCCL_IB_HCA", "=mlx5_1:1") == Ranks{0, 2});
  CHECK(ranks("NCCL_IB_HCA", "mlx5") == Ranks{});
  CHECK(ranks("NCCL_IB_HCA", "mlx5_1,mlx5_0") == Ranks{});
  CHECK(ranks("NCCL_IB_HCA", "mlx5_10") == Ranks{0, 1, 2, 3});
  CHECK(ranks("NCCL_IB_HCA", "^mlx5_0") == Ranks{0, 2});
  CHECK(ranks("NCCL_IB_HCA", "^mlx5_10") == Ranks{});
  CHECK(ranks("NCCL_IB_HCA", "mlx5_9") == Ranks{0, 1, 2, 3});
  CHECK(ranks("NCCL_IB_HCA", "^mlx5") == Ranks{0, 1, 2, 3});
  CHECK(ranks("NCCL_IB_HCA", "") == Ranks{});
  CHECK(ranks("UCX_NET_DEVICES", "mlx5_1:1") == Ranks{0, 2});
  CHECK(ranks("UCX_NET_DEVICES", "mlx5") == Ranks{0, 1, 2, 3});  // whole names: there is no such card
  CHECK(ranks("UCX_NET_DEVICES", "all") == Ranks{});
  JobFacts job = healthy_job();
  for (RankFacts& f : job.ranks) f.environment["UCX_NET_DEVICES"] = "mlx5_0:1", f.topology.nic_cores[1].clear();
  CHECK(nic_checks(job).at(0).status == CheckStatus::pass);
}
