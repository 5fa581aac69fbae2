// Events of the device, kept for use again: in steady state none is made. Addresses are a cudaEvent_t and a
// cudaStream_t.
#pragma once
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace rw {

class EventPool {
 public:
  enum class Clock : uint8_t { none, timed };
  explicit EventPool(Clock clock) : clock_(clock) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  void* take();
  void give(void* event) { spare_.push_back(event); }

 private:
  Clock clock_;
  std::vector<void*> spare_;
};

bool event_reached(void* event);
// The same without throwing, for those who look after others or clean up: what a device that failed lost has ended.
bool event_ended(void* event) noexcept;
double event_seconds(void* begin, void* end);  // of a timed pool, both reached
bool is_capturing(void* stream);  // a graph is being recorded: nothing may be asked about what is put on it

// How long a stream stood still for others: the time between two of its events around each wait.
class StallClock {
 public:
  explicit StallClock(void* stream) : stream_(stream), events_(EventPool::Clock::timed) {}
  ~StallClock();
  // Around a wait that is put on the stream.
  void before();
  void after();
  // Of the waits that are over and were not told yet, in seconds.
  double take();

 private:
  void collect();

  void* stream_;
  EventPool events_;
  void* begin_ = nullptr;
  std::deque<std::pair<void*, void*>> waits_;
  double seconds_ = 0;
};

}  // namespace rw
