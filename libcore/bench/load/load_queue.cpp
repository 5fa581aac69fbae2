#include "libcore/bench/load/load_queue.h"

#include <algorithm>
#include <unordered_map>

#include "libcore/base/error.h"

namespace rw {

LoadQueue::LoadQueue(const std::vector<LoadRequest>& schedule, Order order)
    : order_(order), followers_(schedule.size()) {
  std::unordered_map<int64_t, size_t> position_of;
  for (size_t i = 0; i < schedule.size(); ++i) {
    const LoadRequest& r = schedule[i];
    if (r.after < 0) {
      timed_.emplace_back(order == Order::by_time ? r.due_s : 0, i);
    } else {
      const auto before = position_of.find(r.after);
      if (before == position_of.end())
        fail(ErrorKind::input, "request {}: expected to follow an earlier request, found {}", r.index, r.after);
      followers_[before->second].push_back({i, r.due_s});
    }
    if (!position_of.emplace(r.index, i).second)
      fail(ErrorKind::input, "request {}: expected one of this index, found two", r.index);
  }
  std::sort(timed_.begin(), timed_.end());
}

LoadQueue::Due LoadQueue::front(double now_s) const {
  bool timed = followers_due_.empty();
  if (!timed && next_ < timed_.size())
    timed = order_ == Order::by_time ? timed_[next_] <= followers_due_.top() : followers_due_.top().first > now_s;
  const Entry& e = timed ? timed_[next_] : followers_due_.top();
  return {e.second, e.first};
}

void LoadQueue::pop(size_t position) {
  if (next_ < timed_.size() && position == timed_[next_].second) ++next_;
  else followers_due_.pop();
}

void LoadQueue::ended(size_t position, double end_s) {
  for (const Follower& f : followers_[position]) followers_due_.emplace(end_s + f.pause_s, f.position);
}

int64_t LoadQueue::due_by(double until_s) {
  while (ahead_ < timed_.size() && timed_[ahead_].first <= until_s) ++ahead_;
  return static_cast<int64_t>(std::max(ahead_, next_) - next_);
}

}  // namespace rw
