// Which request goes when: those with a time of their own in order, those that follow another when it has ended. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "libcore/bench/load/load_types.h"

namespace rw {

class LoadQueue {
 public:
  // by_time: an open loop. followers_first: a closed one, where due times of requests that follow no other count for
  // nothing, and a conversation that has begun goes on before the next one begins.
  enum class Order : uint8_t { by_time, followers_first };
  // Keeps no reference. Error{input} for two requests of one index, or an `after` that is no earlier one's.
  LoadQueue(const std::vector<LoadRequest>& schedule, Order order);

  struct Due {
    size_t position;  // in the schedule
    double due_s;
  };
  bool empty() const { return next_ == timed_.size() && followers_due_.empty(); }  // followers may still come
  // The next one, at the time `now_s`; it may be due later.
  Due front(double now_s) const;
  void pop(size_t position);  // of the front
  // The request at `position` has ended: those that follow it become due.
  void ended(size_t position, double end_s);
  // How many with a time of their own are due by `until_s`; asked with rising times.
  int64_t due_by(double until_s);

 private:
  using Entry = std::pair<double, size_t>;
  struct Follower {
    size_t position;
    double pause_s;
  };
  const Order order_;
  std::vector<Entry> timed_;  // by time, then in the schedule's order
  size_t next_ = 0, ahead_ = 0;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> followers_due_;
  std::vector<std::vector<Follower>> followers_;  // by position
};

}  // namespace rw
