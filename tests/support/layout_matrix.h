// Every layout of up to 8 ranks that the laws of parallel training are tested over, and small parts of it that still
// meet every pair of choices.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/parallel_run.h"

namespace rw::parallel {

// A place in the matrix: an index into the choices of each parameter.
struct Combination {
  enum Parameter { family, tp, pp, schedule, vpp, dp, zero, sp, recompute, n_parameters };
  int choice[n_parameters] = {};
  std::string family_name() const;
  Layout layout() const;  // over base_layout()
};

// All combinations of family x tp {1,2,4} x pp {1,2,4} x schedule x vpp {1,2} x dp {1,2,4} x zero 0-3 x sp x recompute
// with at most 8 ranks. Left out as invalid: sp with tp 1; interleaved with vpp 1 or with micro-batches that pp does
// not divide; fewer layers than pp x vpp.
std::vector<Combination> layout_matrix();

// Few of them in which every pair of choices of two parameters that is met in all is met: greedily, the first of those
// that add most. Always the same.
std::vector<Combination> pairwise_cover(const std::vector<Combination>& all);
// Part k of n, dealt at random but always alike: the parts of k = 0..n-1 make up all.
std::vector<Combination> random_part(const std::vector<Combination>& all, int64_t k, int64_t n);

// What a run of the tests covers: everything with RANKWRIGHT_FULL=1, otherwise the cover and a sixtieth chosen by
// RANKWRIGHT_SEED (a number, like the day's; 0 when not set; "none" for the cover alone).
std::vector<Combination> combinations_to_run();

}  // namespace rw::parallel
