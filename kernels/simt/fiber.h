// A thread of a simulated block: a stack of its own, entered and left by hand.
#pragma once
#include <cstddef>

namespace rw::simt {

// Runs `entry(argument)` on its own stack, from where the scheduler calls resume() until it calls suspend(), and so on.
// entry must not return or throw: it ends with finish(). Stacks are pooled per host thread.
class Fiber {
 public:
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();
  void start(void (*entry)(void*), void* argument);
  // By the scheduler.
  void resume();
  // By the fiber that runs.
  void suspend();
  void finish();  // for ever

 private:
  struct Switch;
  static void first_step(Fiber* fiber);
  void leave(bool for_ever);
  void* stack_ = nullptr;
  void* context_ = nullptr;    // where the fiber goes on
  void* scheduler_ = nullptr;  // where the scheduler goes on
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  // What AddressSanitizer wants to know of a change of stacks.
  void *fake_stack_ = nullptr, *scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  size_t scheduler_size_ = 0;
};

// Makes this host thread's pool of stacks: by whoever keeps fibers for the thread's life, before them, so that it
// outlives them.
void make_stack_pool();

constexpr size_t kStackBytes = 64 << 10;

}  // namespace rw::simt
