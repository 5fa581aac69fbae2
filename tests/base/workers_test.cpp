#include "libcore/base/workers.h"

#include <doctest/doctest.h>

#include <atomic>
#include <vector>

#include "libcore/base/error.h"

using namespace rw;

TEST_CASE("every job is done once, by however many threads") {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{2}, size_t{97}}) {
    for (const int threads : {1, 2, 7}) {
      std::vector<std::atomic<int>> done(n);
      run_jobs(n, threads, [&](size_t i) { ++done[i]; });
      for (const auto& times : done) REQUIRE(times == 1);
    }
  }
  CHECK(reading_threads() >= 1);
}

TEST_CASE("the first failure of a job ends the list and is the caller's") {
  for (const int threads : {1, 3}) {
    std::atomic<int> begun = 0;
    CHECK_THROWS_WITH_AS(run_jobs(1000, threads,
                                  [&](size_t i) {
                                    ++begun;
                                    if (i == 10) fail(ErrorKind::input, "job {}", i);
                                  }),
                         "job 10", Error);
    CHECK(begun <= 1000);
    if (threads == 1) CHECK(begun == 11);
  }
}
