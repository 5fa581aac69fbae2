// What the tests of ranks that fail are made of.
#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>

#include "libcore/base/error.h"
#include "tests/comm/check_tools.h"

namespace rw::checks {

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

inline void must_say(const std::string& text, const std::string& part) {
  expect(has(text, part), "\"{}\" does not say \"{}\"", text, part);
}

// Threads that tell each other how far they are.
class Arrivals {
 public:
  void arrive() {
    std::lock_guard lock(mutex_);
    ++n_;
    came_.notify_all();
  }
  // Until n have; throws after a minute.
  void wait_for(int n) {
    std::unique_lock lock(mutex_);
    if (!came_.wait_for(lock, std::chrono::minutes(1), [&] { return n_ >= n; }))
      throw std::runtime_error("only " + std::to_string(n_) + " of " + std::to_string(n) + " ranks came");
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  int n_ = 0;
};

// Ranks that give up at about the same time stay until all have: a board outlives its users.
inline void leave_together(Arrivals& ended, int ranks) {
  ended.arrive();
  ended.wait_for(ranks);
}

}  // namespace rw::checks
