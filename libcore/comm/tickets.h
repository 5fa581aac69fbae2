// Numbers for operations under way: handed out in order, done in any order.
#pragma once
#include <cstdint>
#include <deque>

#include "libcore/base/check.h"

namespace rw {

class Tickets {
 public:
  int64_t open() {
    open_.push_back(true);
    ++n_open_;
    return first_ + static_cast<int64_t>(open_.size()) - 1;
  }
  void close(int64_t id) {
    CHECK(!done(id), "operation %lld is done already", static_cast<long long>(id));
    open_[static_cast<size_t>(id - first_)] = false;
    --n_open_;
    while (!open_.empty() && !open_.front()) {
      open_.pop_front();
      ++first_;
    }
  }
  bool done(int64_t id) const {
    CHECK(id >= 0 && id < first_ + static_cast<int64_t>(open_.size()), "operation %lld was not started here",
          static_cast<long long>(id));
    return id < first_ || !open_[static_cast<size_t>(id - first_)];
  }
  int64_t n_open() const { return n_open_; }

 private:
  std::deque<bool> open_;  // of the numbers from first_; all before are done
  int64_t first_ = 0, n_open_ = 0;
};

}  // namespace rw
