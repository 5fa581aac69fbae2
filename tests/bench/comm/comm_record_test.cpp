// The record of dbench comm: names of metrics, exact counts, fits and what a cluster file gets of them.
#include "libcore/bench/comm/comm_record.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "libcore/base/error.h"
#include "libcore/spec/cluster_spec.h"

using namespace rw;

static CommCase timed(BenchOp op, const std::string& way, int64_t bytes, double us) {
  CommCase c{.op = op, .way = way, .is_shared = true, .bytes = bytes, .count = bytes / 4, .ranks = 2};
  CommTiming t;
  t.us = us, t.samples = 6, t.blocks_us = {us, us + 1, us + 2};
  c.in_place = t;
  return c;
}

// 2 us + bytes / 4 GB/s.
static std::vector<CommCase> all_reduces() {
  std::vector<CommCase> cases;
  for (const int64_t n : {1000, 20000, 300000, 5000000})
    cases.push_back(timed(BenchOp::all_reduce, "auto", n, 2 + static_cast<double>(n) / 4e3));
  return cases;
}

TEST_CASE("metrics of a record: blocks are samples, counts are exact, no name twice") {
  CommFindings found{.comm = "mpi/shm", .ranks = 2, .cases = all_reduces(), .pairs = {}};
  CommCase ring = timed(BenchOp::all_reduce, "ring", 1000, 7);
  ring.sent = SentCount{.bytes = 1000, .messages = 2};
  found.cases.push_back(ring);
  ring.is_shared = false;
  found.cases.push_back(ring);
  CommCase gather = timed(BenchOp::all_gather, "direct", 1000, 7);
  gather.out_of_place = gather.in_place;
  found.cases.push_back(gather);
  found.fits = fit_links(comm_rows(found.cases));
  found.pairs = PairReport{.pairs = {PairSpeed{.a = 0, .b = 1, .latencies_us = {3, 4}, .times_us = {500, 1000}}},
                           .hosts = {"a", "b"},
                           .bytes = 1000000};
  const BenchRecord record = comm_record(found);
  CHECK(record.bench == "comm");
  CHECK(record.repeats == 5);
  std::set<std::string> names;
  for (const BenchMetric& m : record.metrics) CHECK(names.insert(m.name).second);
  const BenchMetric* m = find_metric(record, "comm.all_reduce.ring.1000.f32.us");
  REQUIRE(m != nullptr);
  CHECK(m->samples == std::vector<double>{7, 8, 9});
  CHECK(m->unit == "us");
  CHECK(m->kind == MetricKind::time);
  m = find_metric(record, "comm.all_reduce.ring.1000.f32.private.sent_bytes");
  REQUIRE(m != nullptr);
  CHECK(m->kind == MetricKind::count);
  CHECK(m->samples == std::vector<double>{1000});
  CHECK(find_metric(record, "comm.all_gather.direct.1000.f32.us") != nullptr);
  CHECK(find_metric(record, "comm.all_gather.direct.1000.f32.in_place.us") != nullptr);
  m = find_metric(record, "comm.pair.0-1.gb_s");
  REQUIRE(m != nullptr);
  CHECK(m->better == Better::higher);
  CHECK(m->samples == std::vector<double>{2, 1});  // 1 MB in 500 and 1000 us

  // What dplan discover --comm-json makes of it.
  const BenchRecord again = parse_record(record_json(record), "test");
  CHECK(again.metrics.size() == record.metrics.size());
  const LinkFits fits = fit_comm_results(record_json(record).dump(), "comm.json");
  REQUIRE(fits.node.size() == 2);  // all_gather, all_reduce
  CHECK(fits.node[1].segments.at(0).alpha == doctest::Approx(2e-6));
  CHECK(fits.node[1].segments.at(0).bandwidth == doctest::Approx(4e9));
}

TEST_CASE("fits, and the tables of a cluster file") {
  const LinkFits fits = fit_links(comm_rows(all_reduces()));
  REQUIRE(fits.node.size() == 1);
  CHECK(link_text(fits).find("2 us + bytes / 4 GB/s") != std::string::npos);
  CHECK(link_json(fits)["fits"][0]["segments"][0]["alpha_s"].get<double>() == doctest::Approx(2e-6));
  // A ring of 2: an all_reduce is two rounds of half the bytes.
  const std::string fragment = cluster_fragment(fits);
  CHECK(fragment.find("link-bandwidth = 4e+09\nlink-latency = 1e-06\n") != std::string::npos);
  CHECK(fragment.find("[network]") == std::string::npos);
  // With the keys that a fragment does not have it is a cluster file.
  std::string whole = fragment;
  whole.replace(whole.find("[[node]]\n"), 9,
                "[device.cpu]\nmemory = 1000\npeak-f32 = 1e9\nmemory-bandwidth = 1e9\n"
                "[[node]]\nname = \"n\"\ndevice = \"cpu\"\ndevices = 2\n");
  const ClusterSpec cluster = parse_cluster_spec(whole, "fragment");
  CHECK(cluster.nodes[0].link_bandwidth == 4e9);
  CHECK(cluster.nodes[0].collectives == fits.node);

  const ClusterSpec full = parse_cluster_spec(cluster_with_links("h100-sxm", fits), "whole");
  ClusterSpec want = load_cluster_spec("h100-sxm");
  CHECK(full.devices == want.devices);
  CHECK(full.nodes[0].link_bandwidth == 4e9);
  CHECK(full.nodes[0].link_latency == 1e-6);
  CHECK(full.nodes[0].devices == want.nodes[0].devices);
  CHECK(full.nodes[0].collectives.size() == want.nodes[0].collectives.size() + 1);

  LinkFits wide = fits;
  wide.node[0].ranks = 1000;
  CHECK_THROWS_AS(cluster_with_links("h100-sxm", wide), Error);
}

TEST_CASE("nothing is fitted to nothing, or to wrong results") {
  CHECK(fit_links({}).node.empty());
  std::vector<CommCase> cases = all_reduces();
  cases[1].in_place->wrong = 1;
  CHECK(fit_links(comm_rows(cases)).node.empty());
  CHECK(link_text({}).empty());
}

TEST_CASE("a job of two nodes with two ranks each: each kind of link is measured apart") {
  run_thread_ranks(
      4,
      [](Comm& comm) {
        CommBenchSpec spec{.op = {"send_recv"}, .min_bytes = 100, .max_bytes = 10000, .factor = 10, .iters = 5};
        spec.warmup_iters = 0;
        AllReducePolicy policy;
        std::vector<CommCase> cases;
        run_comm_bench(
            {.spec = spec, .comm = comm, .policy = policy, .report = [&](const CommCase& c) { cases.push_back(c); }});
        const LinkFits fits = fit_links(comm_rows(cases));
        if (fits.node.size() != 1 || fits.network.size() != 1 || fits.node[0].ranks != 2 || fits.network[0].ranks != 2)
          throw std::runtime_error("one fit for each kind of link is expected");
      },
      2);
}
