// How attention over pages divides its work: which sequences go through their context in blocks of queries, and tasks
// numbered over sequences of differing length.
#pragma once
#include <cstdint>

#include "kernels/ops.h"

namespace rw::RW_ISA {
namespace {

constexpr int64_t kTiledQueries = 16;  // from here on a block of queries costs less than as many single ones

// Whether the queries of sequence s go through its context together.
inline bool tiled(const PagedAttention& a, int64_t s) {
  return !a.fixed_order && a.workspace != nullptr && a.q_start[s + 1] - a.q_start[s] >= kTiledQueries;
}

// Tasks of sequences one after the other, tasks_of(s) of each. A thread asks for ascending numbers.
template <class TasksOf>
class TaskWalk {
 public:
  TaskWalk(int64_t n_seq, const TasksOf& tasks_of) : tasks_of_(tasks_of), end_(n_seq > 0 ? tasks_of(0) : 0) {
    for (int64_t s = 0; s < n_seq; ++s) all_ += tasks_of(s);
  }
  int64_t all() const { return all_; }
  struct At {
    int64_t sequence, task;  // number within the sequence
  };
  At at(int64_t i) {  // i < all(), not below the last one asked for
    while (i >= end_) {
      first_ = end_;
      end_ += tasks_of_(++s_);
    }
    return {s_, i - first_};
  }

 private:
  const TasksOf& tasks_of_;
  int64_t all_ = 0, s_ = 0, first_ = 0, end_;
};

// Where successive positions of a sequence lie, in tokens of the pool.
struct PageCursor {
  const int32_t* pages;
  int64_t page_tokens, page = 0, offset = 0;

  int64_t next() {
    const int64_t at = pages[page] * page_tokens + offset;
    if (++offset == page_tokens) {
      offset = 0;
      ++page;
    }
    return at;
  }
};

}  // namespace
}  // namespace rw::RW_ISA
