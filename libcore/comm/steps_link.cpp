#include "libcore/comm/steps_link.h"

#include <algorithm>

namespace rw {

int64_t MpiStepLink::free_place() {
  const auto it = std::find(is_used_.begin(), is_used_.end(), false);
  const int64_t place = it - is_used_.begin();
  if (it == is_used_.end()) {
    under_way_.emplace_back();
    is_used_.push_back(true);
  } else {
    *it = true;
  }
  return place;
}

int64_t MpiStepLink::start_send(const void* data, int64_t bytes, int peer) {
  const int64_t place = free_place();
  link_->start_send(under_way_[static_cast<size_t>(place)], data, bytes, peer, tag_);
  return place;
}

int64_t MpiStepLink::start_recv(void* data, int64_t bytes, int peer) {
  const int64_t place = free_place();
  link_->start_recv(under_way_[static_cast<size_t>(place)], data, bytes, peer, tag_);
  return place;
}

bool MpiStepLink::test(int64_t message) {
  if (!under_way_[static_cast<size_t>(message)].done()) return false;
  is_used_[static_cast<size_t>(message)] = false;
  return true;
}

}  // namespace rw
