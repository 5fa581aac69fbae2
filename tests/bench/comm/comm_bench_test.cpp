// dbench comm over ranks that are threads: results are checked, tables are put together.
#include "libcore/bench/comm/comm_bench.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "libcore/base/error.h"
#include "libcore/bench/comm/pattern.h"

using namespace rw;

// IEEE 754 binary16: sign, 5 bits of exponent (bias 15), 10 of fraction.
static double f16_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return bits >> 15 ? -size : size;
}

TEST_CASE("test data: sums are exact in bf16, wrong elements are counted") {
  for (int ranks : {1, 2, 5, 64, 65, 1000}) {
    CAPTURE(ranks);
    const int64_t n = 300;
    std::vector<float> sum(n), want(n), part(n);
    for (int r = 0; r < ranks; ++r) {
      Pattern::of_rank(r, ranks, DType::f32).fill(part.data(), 0, n);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    Pattern::of_sum(ranks, DType::f32).fill(want.data(), 0, n);
    CHECK(sum == want);
    std::vector<uint16_t> narrow(n), half(n);
    Pattern::of_sum(ranks, DType::bf16).fill(narrow.data(), 0, n);
    Pattern::of_sum(ranks, DType::f16).fill(half.data(), 0, n);
    bool alike = true, all_zero = true;
    for (size_t i = 0; i < sum.size(); ++i) {
      alike =
          alike && std::bit_cast<float>(static_cast<uint32_t>(narrow[i]) << 16) == want[i] && std::abs(want[i]) <= 256;
      all_zero = all_zero && part[i] == 0;
      alike = alike && f16_value(half[i]) == want[i];
    }
    CHECK(alike);
    CHECK_FALSE(all_zero);
  }
  const Pattern p = Pattern::of_rank(3, 8, DType::i64);
  std::vector<int64_t> x(500);
  p.fill(x.data(), 1000, 500);
  CHECK(p.count_wrong(x.data(), 1000, 500) == 0);
  CHECK(p.count_wrong(x.data(), 1001, 500) > 300);
  x[0] = x[499] = x[250] = 99;
  CHECK(p.count_wrong(x.data(), 1000, 500) == 3);
  CHECK(p.count_wrong(x.data() + 7, 1007, 0) == 0);
}

TEST_CASE("every operation and type on 1, 2 and 3 ranks: timings on all ranks, nothing wrong") {
  for (int ranks : {1, 2, 3}) {
    std::mutex mutex;
    std::vector<std::vector<CommCase>> of_rank(static_cast<size_t>(ranks));
    run_thread_ranks(ranks, [&](Comm& comm) {
      CommBenchSpec spec{.dtype = {"f32", "bf16", "f16", "f64", "i64"},
                         .min_bytes = 1000,
                         .max_bytes = 70000,
                         .factor = 7,
                         .iters = 5,
                         .warmup_iters = 1,
                         .repeats = 3,
                         .calls = ranks == 3 ? 2 : 0,
                         .rewrite = ranks == 2};
      AllReducePolicy policy;
      run_comm_bench({.spec = spec, .comm = comm, .policy = policy, .report = [&](const CommCase& c) {
                        const std::lock_guard lock(mutex);
                        of_rank[static_cast<size_t>(comm.rank())].push_back(c);
                      }});
    });
    CHECK(of_rank[0].size() >= 5u * 3 * 4 * 2 + 1);
    CHECK(std::count_if(of_rank[0].begin(), of_rank[0].end(),
                        [](const CommCase& c) { return c.op == BenchOp::barrier; }) == 1);
    for (const auto& cases : of_rank) {
      REQUIRE(cases.size() == of_rank[0].size());
      for (size_t i = 0; i < cases.size(); ++i)
        for (const auto& [t, same] : {std::pair{cases[i].in_place, of_rank[0][i].in_place},
                                      std::pair{cases[i].out_of_place, of_rank[0][i].out_of_place}}) {
          if (!t) continue;
          CAPTURE(bench_op_name(cases[i].op));
          CAPTURE(cases[i].bytes);
          CHECK(t->wrong == (cases[i].op == BenchOp::barrier ? -1 : 0));
          CHECK(t->samples == 5);
          CHECK(t->blocks_us.size() == 3);  // of 1, 2 and 2 samples
          CHECK(t->us == same->us);
          CHECK(t->us_min <= t->us);
          CHECK(t->us <= t->us_max);
        }
    }
  }
}

TEST_CASE("a tuned table replaces the rows of its job alone") {
  const auto row = [](int64_t ranks, int64_t nodes, int64_t bytes) {
    return CommTableRow{.ranks = ranks, .nodes = nodes, .max_bytes = bytes};
  };
  const CommTable before{{row(2, 1, 100), row(4, 2, 100), row(4, 2, 200), row(4, 1, 100)}};
  const CommTable after = replace_rows(before, {row(4, 2, 50)});
  CHECK(after.all_reduce == std::vector<CommTableRow>{row(2, 1, 100), row(4, 1, 100), row(4, 2, 50)});

  run_thread_ranks(2, [&](Comm& comm) {
    CommBenchSpec spec{.min_bytes = 1024, .max_bytes = 4096, .iters = 5, .warmup_iters = 0};
    AllReducePolicy policy;
    const auto rows = tune_all_reduce({.spec = spec, .comm = comm, .policy = policy, .report = [](const CommCase&) {}});
    if (rows.size() != 1 || rows[0].max_bytes != 4096 || rows[0].ranks != 2 || rows[0].us <= 0)
      throw std::runtime_error("one way there is, one row is expected");
  });
}

TEST_CASE("another way is taken where it is faster by more than noise") {
  const auto timing = [](double us, std::vector<double> blocks) {
    CommTiming t;
    t.us = us, t.blocks_us = std::move(blocks);
    return t;
  };
  const CommTiming direct = timing(100, {100, 100, 100, 100, 100});
  CHECK(worth_taking({direct, timing(98, {98, 98, 98, 98, 98})}, 0) == 0);    // within 3 %
  CHECK(worth_taking({direct, timing(90, {90, 90, 90, 130, 130})}, 0) == 0);  // in three blocks of five
  CHECK(worth_taking({direct, timing(90, {90, 90, 90, 90, 130})}, 0) == 1);   // in four
  CHECK(worth_taking({timing(90, {90}), direct, timing(80, {80})}, 1) == 2);  // the fastest of two that are worth it
  CHECK(worth_taking({direct}, 0) == 0);
}

TEST_CASE("what is asked must exist") {
  CHECK_NOTHROW(check_comm_bench({.op = {"all_gather"}, .way = {"ring", "auto", "mpi-blocking"}, .dtype = {"f64"}}));
  CHECK_THROWS_AS(check_comm_bench({.op = {"alltoall"}}), Error);
  CHECK_THROWS_AS(check_comm_bench({.way = {"star"}}), Error);
  CHECK_THROWS_AS(check_comm_bench({.dtype = {"i8"}}), Error);
}
