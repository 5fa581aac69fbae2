#include "libcore/plan/serve/serve_sim.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "libcore/plan/serve/serve_stats.h"

using namespace rw;

namespace {

constexpr int64_t kPages = 4096;

SimQuery query(const Workload& w, double stretch = 1) {
  return {.workload = w,
          .arrivals = stretched_arrivals(w, stretch),
          .scheduler = {.n_pages = kPages, .block_tokens = 16, .max_seqs = 64, .max_batch_tokens = 512},
          .max_model_len = 0,
          .role = ServeRole::whole,
          .step_s = [](const PricedStep&) { return 0.01; },
          .keep_gaps = true};
}

Workload one_request(int64_t input, int64_t output) {
  return {.name = "one", .requests = {{.arrival_s = 0, .input = input, .output = output}}, .rate = 1};
}

}  // namespace

TEST_CASE("a step's shape counts pairs and contexts") {
  PricedStep s;
  s.add(0, 3, false);  // queries see 1, 2, 3 keys
  CHECK(s.pairs == 6);
  CHECK(s.context == 3);
  s.add(10, 1, true);  // one query sees 11
  CHECK(s.rows == 4);
  CHECK(s.logits == 1);
  CHECK(s.pairs == 17);
  CHECK(s.context == 14);
}

TEST_CASE("one request alone: chunks of the prompt, then a token a step") {
  // 1000 tokens in chunks of 512: two steps until the first token, 4 more for the rest.
  const Workload w = one_request(1000, 5);
  const SimResult r = simulate(query(w));
  CHECK(r.steps == 6);
  CHECK(r.requests[0].first_gap_s() == doctest::Approx(0.02));
  CHECK(r.requests[0].last_s == doctest::Approx(0.06));
  CHECK(r.requests[0].worst_gap_s == doctest::Approx(0.01));
  CHECK(r.requests[0].tokens == 5);
  CHECK(r.gaps_s.size() == 4);
  CHECK(r.pages_left == kPages);
}

// M/D/1: Poisson arrivals, one server, fixed service times: the mean wait is rho S / (2 (1 - rho))
// (Pollaczek 1930, Khinchin 1932).
TEST_CASE("one sequence at a time is an M/D/1 queue") {
  for (const double rho : {0.3, 0.6, 0.8}) {
    const double service = 0.01;
    const Workload w = describe_workload("in=7,out=1,requests=150000,rate=" + std::to_string(rho / service), 7);
    SimQuery q = query(w);
    q.scheduler.max_seqs = 1;
    const SimResult r = simulate(q);
    double wait = 0;
    for (const SimRequest& s : r.requests) wait += s.first_gap_s() - service;
    wait /= static_cast<double>(r.requests.size());
    const double expected = rho * service / (2 * (1 - rho));
    CAPTURE(rho);
    CHECK(std::abs(wait / expected - 1) < 0.04);
    CHECK(std::abs(r.busy_s / (r.end_s - r.begin_s) / rho - 1) < 0.02);   // utilisation
    CHECK(std::abs(r.mean_waiting / (wait * rho / service) - 1) < 0.02);  // Little's law: L = lambda W
  }
}

TEST_CASE("arrivals like clockwork below capacity never wait") {
  const Workload w = describe_workload("in=7,out=1,requests=997,rate=50,burst=0", 1);
  SimQuery q = query(w);
  q.scheduler.max_seqs = 1;
  for (const SimRequest& s : simulate(q).requests) CHECK(s.first_gap_s() == doctest::Approx(0.01));
}

TEST_CASE("a prefix that is cached takes its steps off the first token") {
  // 1024 shared tokens of 1100, 512 a step: 3 steps for the first prompt. The second, long after, finds 1024 tokens
  // (64 whole blocks of 16) and computes 76 in one.
  Workload w = describe_workload("in=1100,out=2,rate=0.01,requests=2,burst=0,prefix=1024", 1);
  const SimResult r = simulate(query(w));
  CHECK(r.requests[0].first_gap_s() == doctest::Approx(0.03));
  CHECK(r.requests[1].first_gap_s() == doctest::Approx(0.01));
  CHECK(r.prefix_queries == 2200);
  CHECK(r.prefix_hits == 1024);
  SimQuery off = query(w);
  off.scheduler.prefix_cache = false;
  CHECK(simulate(off).requests[1].first_gap_s() == doctest::Approx(0.03));
}

TEST_CASE("hash ids share whole blocks of 512 tokens") {
  Workload w{.name = "hashes",
             .requests = {{.arrival_s = 0, .input = 1030, .output = 1, .hash_ids = {5, 6, 7}},
                          {.arrival_s = 100, .input = 1040, .output = 1, .hash_ids = {5, 6, 9}},
                          {.arrival_s = 200, .input = 1040, .output = 1, .hash_ids = {4, 6, 9}}},
             .rate = 1};
  const SimResult r = simulate(query(w));
  CHECK(r.prefix_hits == 1024);  // of the second; the third differs from its first token on
}

TEST_CASE("too many sequences for the pages: some are preempted, all finish, every page comes back") {
  const Workload w = describe_workload("in=33,out=90..110,rate=1e6,requests=53", 3);
  SimQuery q = query(w);
  q.scheduler.n_pages = 61;  // of 16 tokens; a request ends with up to 9
  const SimResult r = simulate(q);
  CHECK(r.preemptions > 0);
  CHECK(r.pages_left == 61);
  CHECK(r.most_waiting > 0);
  CHECK(r.most_kv_usage <= 1);
  int64_t tokens = 0;
  for (const SimRequest& s : r.requests) {
    CHECK(!s.refused);
    CHECK(s.tokens == w.requests[static_cast<size_t>(s.request)].output);
    tokens += s.tokens;
  }
  CHECK(tokens == r.tokens);
}

TEST_CASE("what can never run is refused, and nothing else") {
  Workload w = one_request(900, 125);
  w.requests.push_back({.arrival_s = 0, .input = 900, .output = 124});
  SimQuery q = query(w);
  q.max_model_len = 1024;
  const SimResult r = simulate(q);
  CHECK(r.requests[0].refused);
  CHECK(!r.requests[1].refused);
  q.max_model_len = 0;
  q.scheduler.n_pages = 63;  // 1008 tokens; the last one drawn is never fed
  CHECK(simulate(q).requests[1].refused);
  const SimResult small = simulate(q);
  SimResult stats_of = small;
  const ServeStats s = serve_stats(stats_of, {.ttft_s = 1, .itl_s = 1}, 1);
  CHECK(s.refused == 2);
  CHECK(s.attainment == 0);
}

TEST_CASE("prefill and decode servers share a request") {
  const Workload w = one_request(1000, 5);
  SimQuery q = query(w);
  q.role = ServeRole::prefill;
  const SimResult p = simulate(q);
  CHECK(p.requests[0].tokens == 1);
  CHECK(p.steps == 2);
  q.role = ServeRole::decode;
  q.scheduler.itl_budget_s = 0.012;  // prompts that were sent are not cut
  // Keys and values arrive 7 ms after the first token: the first gap is that and a step of one row.
  q.arrivals = {{.request = 0, .ready_s = p.requests[0].first_s + 0.007, .since_s = p.requests[0].first_s}};
  std::vector<PricedStep> shapes;
  q.step_s = [&](const PricedStep& s) {
    shapes.push_back(s);
    return 0.01;
  };
  const SimResult d = simulate(q);
  CHECK(d.requests[0].tokens == 4);
  CHECK(d.requests[0].worst_gap_s == doctest::Approx(0.017));
  REQUIRE(shapes.size() == 4);
  CHECK(shapes[0].rows == 1);
  CHECK(shapes[0].context == 1001);
  CHECK(shapes[3].context == 1004);
  SimResult pp = p, dd = d;
  const ServeStats s = serve_stats({.prefill = pp, .decode = dd}, {.ttft_s = 0.02001, .itl_s = 0.0171});
  CHECK(s.attainment == 1);
  CHECK(s.ttft_s.p50 == doctest::Approx(0.02));
  CHECK(s.e2e_s.p99 == doctest::Approx(0.02 + 0.017 + 0.03));
}

TEST_CASE("a preempted sequence of a decode server pays for its prompt") {
  const Workload w = describe_workload("in=33,out=90..110,rate=1e6,requests=53", 3);
  SimQuery q = query(w);
  q.role = ServeRole::decode;
  q.scheduler.n_pages = 61;
  int64_t long_rows = 0;
  q.step_s = [&](const PricedStep& s) {
    long_rows += s.rows > 53;
    return 0.01;
  };
  const SimResult r = simulate(q);
  CHECK(r.preemptions > 0);
  CHECK(long_rows > 0);
  CHECK(r.pages_left == 61);
}

TEST_CASE("percentiles are by nearest rank") {
  std::vector<float> v;
  for (int i = 100; i >= 1; --i) v.push_back(static_cast<float>(i));
  const Percentiles p = percentiles(v);
  CHECK(p.p50 == 50);
  CHECK(p.p90 == 90);
  CHECK(p.p99 == 99);
  CHECK(quantile(v, 1) == 100);
  std::vector<float> none;
  CHECK(quantile(none, 0.5) == 0);
}

TEST_CASE("a looser objective never keeps fewer; mean gaps keep at least as many as worst gaps") {
  const Workload w = describe_workload("in=200..700,out=3..40,rate=20,requests=499,burst=2", 11);
  SimQuery q = query(w);
  q.step_s = [](const PricedStep& s) { return 0.002 + 1e-5 * static_cast<double>(s.rows); };
  const SimResult r = simulate(q);
  double last = -1;
  for (const double slack : {0.25, 0.5, 1.0, 1.1, 2.0, 8.0}) {
    SimResult copy = r;
    ServeObjective o{.ttft_s = 0.02 * slack, .itl_s = 0.006 * slack};
    const ServeStats s = serve_stats(copy, o, 1);
    CHECK(s.goodput >= last);
    last = s.goodput;
    copy = r;
    o.gap = ServeObjective::Gap::mean;
    CHECK(serve_stats(copy, o, 1).attainment >= s.attainment);
  }
  CHECK(last > 0);
}

TEST_CASE("a queue longer than a step lets in is counted in whole") {
  // Ten at once, one at a time, each a step of 0.01 s: 9, 8, ..., 0 wait.
  Workload w{.name = "ten", .requests = {}, .rate = 1};
  for (int i = 0; i < 10; ++i) w.requests.push_back({.arrival_s = 0, .input = 7, .output = 1});
  SimQuery q = query(w);
  q.scheduler.max_seqs = 1;
  const SimResult r = simulate(q);
  CHECK(r.most_waiting == 9);
  CHECK(r.mean_waiting == doctest::Approx(4.5));
  for (size_t i = 0; i < 10; ++i) CHECK(r.requests[i].last_s == doctest::Approx(0.01 * static_cast<double>(i + 1)));
}

TEST_CASE("of more gaps than are kept every second is") {
  // 64 streams of 131,074 tokens have 64 more gaps than 2^23.
  Workload w{.name = "long", .requests = {}, .rate = 1};
  for (int i = 0; i < 64; ++i) w.requests.push_back({.arrival_s = 0, .input = 1, .output = (1 << 17) + 2});
  SimQuery q = query(w);
  q.scheduler.n_pages = 1 << 20;
  const SimResult r = simulate(q);
  CHECK(r.tokens == 64 * ((1 << 17) + 2));
  CHECK(r.gaps_s.size() == (size_t{1} << 22) + 32);
}
