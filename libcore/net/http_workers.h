// The threads that run the handlers which may take a while, and the bounded queue before them.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "libcore/net/http_app.h"

namespace rw {

class HttpWorkers {
 public:
  HttpWorkers() = default;
  ~HttpWorkers() { stop(); }
  void start(int n, int64_t max_queue);
  // False: the queue is full, or the workers have stopped.
  bool submit(HttpJob job);
  // Waits for the handlers that run; those that wait are dropped.
  void stop();
  double oldest_wait_s() const;

 private:
  struct Waiting {
    HttpJob job;
    double since_s;
  };
  void run();
  mutable std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Waiting> queue_;
  int64_t max_queue_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace rw
