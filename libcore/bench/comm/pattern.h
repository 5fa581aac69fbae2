// Test data whose sums are exact in every type: small integers that repeat, different on each rank.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/dtype.h"

namespace rw {

class Pattern {
 public:
  static constexpr int64_t kPeriod = 97;  // elements; prime, so that it never falls in step with chunks
  // What `rank` contributes: |sum over all ranks| <= 256 at every element, the largest integer that bf16 counts to.
  static Pattern of_rank(int rank, int ranks, DType t);
  static Pattern of_sum(int ranks, DType t);

  // data(n) are the elements from `begin` on of the whole.
  void fill(void* data, int64_t begin, int64_t n) const;
  int64_t count_wrong(const void* data, int64_t begin, int64_t n) const;

 private:
  Pattern(const std::vector<int64_t>& values, DType t);  // (kPeriod)
  const std::byte* at(int64_t element) const { return block_.data() + element % kPeriod * size_; }
  int64_t size_;                  // bytes of an element
  std::vector<std::byte> block_;  // two periods: one from any element on
};

}  // namespace rw
