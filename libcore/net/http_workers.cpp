#include "libcore/net/http_workers.h"

#include <utility>

#include "libcore/base/clock.h"
#include "libcore/net/http_reply.h"

namespace rw {

void HttpWorkers::start(int n, int64_t max_queue) {
  max_queue_ = max_queue;
  for (int i = 0; i < n; ++i) threads_.emplace_back([this] { run(); });
}

bool HttpWorkers::submit(HttpJob job) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || static_cast<int64_t>(queue_.size()) >= max_queue_) return false;
    queue_.push_back({std::move(job), now_s()});
  }
  ready_.notify_one();
  return true;
}

void HttpWorkers::run() {
  for (;;) {
    HttpJob job;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      job = std::move(queue_.front().job);
      queue_.pop_front();
    }
    if (!job.reply->state->gone()) run_handler(*job.route, *job.request, job.reply);
  }
}

void HttpWorkers::stop() {
  std::deque<Waiting> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    dropped.swap(queue_);
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

double HttpWorkers::oldest_wait_s() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? 0 : now_s() - queue_.front().since_s;
}

}  // namespace rw
