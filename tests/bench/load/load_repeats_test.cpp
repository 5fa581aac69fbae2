#include "libcore/bench/load/load_repeats.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace rw;

namespace {

LoadResult result(int64_t completed, double throughput, double p99) {
  LoadResult r;
  r.summary.requests = completed + 1;
  r.summary.completed = completed;
  r.summary.failed = 1;
  r.summary.ends.assign(static_cast<size_t>(LoadEnd::n_ends), 0);
  r.summary.ends[0] = completed;
  r.summary.output_throughput = throughput;
  r.summary.duration_s = 2;
  r.summary.ttft.n = completed;
  r.summary.ttft.p99 = p99;
  return r;
}

}  // namespace

TEST_CASE("repeats: counts add up, rates and latencies are medians, the client's health the worst") {
  std::vector<LoadResult> three = {result(10, 100, 7), result(20, 41, 900), result(30, 751, 5)};
  three[1].health.others_share = 0.7;
  three[2].health.is_void = true;
  three[2].health.why = "late";
  three[0].summary.cached_tokens = 3;
  const LoadResult all = combine_repeats(three);
  CHECK(all.repeats == 3);
  CHECK(all.summary.requests == 63);
  CHECK(all.summary.completed == 60);
  CHECK(all.summary.failed == 3);
  CHECK(all.summary.ends[0] == 60);
  CHECK(all.summary.duration_s == 6);
  CHECK(all.summary.cached_tokens == 3);
  CHECK(all.summary.output_throughput == 100);
  CHECK(all.summary.ttft.p99 == 7);
  CHECK(all.summary.ttft.n == 60);
  CHECK(all.health.others_share == 0.7);
  CHECK_FALSE(all.health.is_quiet());
  CHECK(all.health.is_void);
  CHECK(all.health.why == "late");
}

TEST_CASE("repeats: what one of them does not know") {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  const LoadResult all = combine_repeats({result(1, 1, unknown), result(1, 3, 8)});
  CHECK(all.summary.ttft.p99 == 8);
  CHECK(all.summary.output_throughput == 2);
  CHECK(all.summary.cached_tokens == -1);
  CHECK(std::isnan(combine_repeats({result(1, 1, unknown)}).summary.ttft.p99));
}
