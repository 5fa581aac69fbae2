// What a rank's memory is spent on in serving, in the three parts that users think of: weights, run time, and the
// cache, which gets what is left. Pure.
#pragma once
#include <cstdint>
#include <string>

namespace rw {

struct MemoryAsked {
  int64_t memory = 0;        // bytes for all three; 0: by utilization
  double utilization = 0.9;  // of available
  int64_t available = 0;     // bytes that the system can give
  int64_t weights = 0, runtime = 0;
  int64_t page_bytes = 0, page_tokens = 0;
  int64_t max_len = 0;  // longest sequence
  // The most that can be of use: more pages than this are not taken by utilization alone. 0: no such bound.
  int64_t most_pages = 0;
};

struct MemoryBudget {
  int64_t weights, runtime, kv;  // bytes
  int64_t n_pages;
  double full_sequences;     // of max_len tokens that fit side by side
  std::string text() const;  // one line for the start
};

// Error{usage} with the numbers when not one sequence of max_len tokens fits.
MemoryBudget memory_budget(const MemoryAsked& asked);

}  // namespace rw
