#include "libcore/plan/long_run/goodput.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <string>

#include "libcore/base/error.h"
#include "libcore/ckpt/interval.h"

using namespace rw;

namespace {

// A run, second by second: trains and saves until it has trained `work` seconds that stand in a checkpoint; failures
// come at exponential times. Written from the story, not from the formula.
double simulated_goodput(const FailureTerms& t, double work, uint64_t seed) {
  std::mt19937_64 bits(seed);
  const auto life = [&] { return -t.mtbf_s * std::log1p(-static_cast<double>(bits() >> 11) * 1.1102230246251565e-16); };
  double now = 0, failure = life(), standing = 0;
  while (standing < work) {
    // From `standing` on: saves end their blocking part after k (T + C) and stand W later.
    const double start = now;
    bool alive = true;
    for (int64_t k = 1; alive; ++k) {
      const double commit = start + static_cast<double>(k) * (t.interval_s + t.cost_s) + t.persist_s;
      alive = commit <= failure;
      if (alive) standing += t.interval_s, now = commit;
      if (alive && standing >= work) return standing / now;
    }
    // Detection and restart may be struck as well; each such failure begins them anew.
    for (now = failure, failure += life(); failure < now + t.detect_s + t.restart_s; failure += life()) now = failure;
    now += t.detect_s + t.restart_s;
  }
  return standing / now;
}

ClusterSpec cluster_of(int64_t nodes, double device_hours) {
  DeviceType device;
  device.name = "h100";
  device.mtbf_hours = device_hours;
  NodeType node;
  node.name = "dgx";
  node.device = "h100";
  node.count = nodes;
  node.devices = 8;
  ClusterSpec cluster;
  cluster.where = "there.toml";
  cluster.devices = {device};
  cluster.nodes = {node};
  return cluster;
}

}  // namespace

TEST_CASE("expected goodput is what a simulation of the story finds") {
  const FailureTerms cases[] = {
      {.interval_s = 1115, .cost_s = 60, .persist_s = 0, .detect_s = 300, .restart_s = 600, .mtbf_s = 11124},
      {.interval_s = 500, .cost_s = 3, .persist_s = 377, .detect_s = 60, .restart_s = 241, .mtbf_s = 7000},
      {.interval_s = 1000, .cost_s = 100, .persist_s = 0, .detect_s = 0, .restart_s = 0, .mtbf_s = 1000},
      {.interval_s = 700, .cost_s = 0, .persist_s = 700, .detect_s = 100, .restart_s = 800, .mtbf_s = 1300},
  };
  uint64_t seed = 17;
  for (const FailureTerms& t : cases) {
    CAPTURE(t.mtbf_s);
    CHECK(simulated_goodput(t, 40000 * t.mtbf_s, seed++) == doctest::Approx(expected_goodput(t)).epsilon(0.01));
  }
}

TEST_CASE("first order: by hand, and near the exact one while failures are rare") {
  // 1 - (1115 / 2 + 300 + 600) / 11124 - 60 / 1115 = 1 - 0.131023 - 0.053812
  const FailureTerms llama{
      .interval_s = 1115, .cost_s = 60, .persist_s = 0, .detect_s = 300, .restart_s = 600, .mtbf_s = 11124};
  CHECK(first_order_goodput(llama) == doctest::Approx(0.815165).epsilon(1e-5));
  CHECK(lost_work_s(llama) == 557.5);
  FailureTerms rare = llama;
  rare.persist_s = 41;
  CHECK(lost_work_s(rare) == 598.5);
  rare.mtbf_s = 3e6;
  rare.interval_s = 20000;
  CHECK(first_order_goodput(rare) == doctest::Approx(expected_goodput(rare)).epsilon(1e-4));
  rare.mtbf_s = 100;
  CHECK(first_order_goodput(rare) == 0);
  CHECK(expected_goodput(rare) > 0);
  CHECK(expected_goodput(rare) < 1e-80);
}

TEST_CASE("no failures: only the saves cost, and worse terms never help") {
  FailureTerms t{.interval_s = 300, .cost_s = 100, .persist_s = 10, .detect_s = 1, .restart_s = 2, .mtbf_s = 1e15};
  CHECK(expected_goodput(t) == doctest::Approx(0.75));
  CHECK(first_order_goodput(t) == doctest::Approx(1 - 1.0 / 3));  // C / T is the first order of C / (T + C)
  t.mtbf_s = 5000;
  const double before = expected_goodput(t);
  for (double FailureTerms::*term :
       {&FailureTerms::cost_s, &FailureTerms::persist_s, &FailureTerms::detect_s, &FailureTerms::restart_s}) {
    FailureTerms worse = t;
    worse.*term += 37;
    CHECK(expected_goodput(worse) < before);
    CHECK(first_order_goodput(worse) < first_order_goodput(t));
  }
}

TEST_CASE("the trainer's interval makes the goodput largest, in the background too") {
  for (const double persist : {0.0, 130.0, 400.0}) {
    FailureTerms t{
        .interval_s = 0, .cost_s = 12, .persist_s = persist, .detect_s = 200, .restart_s = 500, .mtbf_s = 11124};
    t.interval_s = optimal_interval_s(t.cost_s, t.mtbf_s);
    const double best = expected_goodput(t);
    double scanned = 0;
    for (double interval = persist + 1; interval < t.mtbf_s; interval += 1.7) {
      FailureTerms other = t;
      other.interval_s = interval;
      scanned = std::max(scanned, expected_goodput(other));
    }
    CHECK(best == doctest::Approx(scanned).epsilon(1e-6));
  }
}

TEST_CASE("mean time between failures of a job") {
  // 54 days, 16,384 devices, 419 unplanned interruptions (Dubey et al. 2024): 50,676 device hours each.
  const double device_hours = 54 * 24.0 * 16384 / 419;
  CHECK(device_hours == doctest::Approx(50.7e3).epsilon(0.001));
  const ClusterSpec by_device = cluster_of(2048, device_hours);
  CHECK(job_mtbf_s(by_device, 16384) == doctest::Approx(3.093 * 3600).epsilon(0.001));
  CHECK(job_mtbf_s(by_device, 1024) / 3600 == doctest::Approx(49.5).epsilon(0.001));
  CHECK(job_mtbf_s(by_device, 32) / 86400 == doctest::Approx(66.0).epsilon(0.001));
  ClusterSpec whole = cluster_of(4, 0);
  whole.mtbf_hours = 100;
  CHECK(job_mtbf_s(whole, 32) == 360000);
  CHECK(job_mtbf_s(whole, 8) == 4 * 360000);
  // Two types: 16 devices of 1000 h and 8 of 500 h fail 0.032 times an hour.
  ClusterSpec mixed = cluster_of(2, 1000);
  mixed.devices.push_back(mixed.devices[0]);
  mixed.devices[1].name = "a100";
  mixed.devices[1].mtbf_hours = 500;
  mixed.nodes.push_back(mixed.nodes[0]);
  mixed.nodes[1].device = "a100";
  mixed.nodes[1].count = 1;
  CHECK(job_mtbf_s(mixed, 24) / 3600 == doctest::Approx(31.25));
  try {
    job_mtbf_s(cluster_of(1, 0), 8);
    FAIL("expected an error");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::usage);
    CHECK(std::string(e.what()).find("mtbf-hours") != std::string::npos);
    CHECK(std::string(e.what()).find("--mtbf") != std::string::npos);
    CHECK(std::string(e.what()).find("there.toml") != std::string::npos);
  }
}
