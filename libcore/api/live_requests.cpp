#include "libcore/api/live_requests.h"

#include <algorithm>

#include "libcore/api/generation_reply.h"

namespace rw {

std::shared_ptr<const void> LiveRequests::hold(const std::string& name) {
  const std::lock_guard lock(names_mutex_);
  if (!names_.insert(name).second) return nullptr;
  return {this, [this, name](const void*) {
            const std::lock_guard again(names_mutex_);
            names_.erase(name);
          }};
}

void LiveRequests::add(const std::shared_ptr<GenerationReply>& reply) {
  const std::lock_guard lock(mutex_);
  replies_.push_back(reply);
}

// Replies are asked without the lock: they have one of their own.
LiveRequests::Replies LiveRequests::replies() const {
  const std::lock_guard lock(mutex_);
  return replies_;
}

void LiveRequests::tick(double now) {
  for (const auto& weak : replies())
    if (const auto reply = weak.lock()) reply->tick(now);
  const std::lock_guard lock(mutex_);
  std::erase_if(replies_, [](const auto& weak) {
    const auto reply = weak.lock();
    return reply == nullptr || reply->over();
  });
}

int64_t LiveRequests::count() const {
  const Replies all = replies();
  return std::count_if(all.begin(), all.end(), [](const auto& weak) {
    const auto reply = weak.lock();
    return reply != nullptr && !reply->over();
  });
}

double LiveRequests::oldest_wait_s(double now) const {
  double oldest = 0;
  for (const auto& weak : replies())
    if (const auto reply = weak.lock()) oldest = std::max(oldest, reply->wait_s(now));
  return oldest;
}

}  // namespace rw
