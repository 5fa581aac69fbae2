// NCCL itself: GPUs go on alone, and a thread looks after them.
#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "libcore/comm/nccl_backend.h"

namespace rw::nccl {
namespace {

constexpr auto kLookEvery = std::chrono::milliseconds(100);

}  // namespace

const char* backend_name() { return "nccl"; }
void lend_host(Comm&, int, int) {}
void move_streams() {}

struct Lookout::State {
  std::mutex mutex;
  std::condition_variable ended;
  bool is_ended = false;
  std::thread thread;
};

Lookout::Lookout(std::function<void()> look) : state_(std::make_unique<State>()) {
  int device = 0;
  cudaGetDevice(&device);
  state_->thread = std::thread([look = std::move(look), device, s = state_.get()] {
    cudaSetDevice(device);
    std::unique_lock lock(s->mutex);
    while (!s->ended.wait_for(lock, kLookEvery, [s] { return s->is_ended; })) look();
  });
}

Lookout::~Lookout() {
  {
    std::lock_guard lock(state_->mutex);
    state_->is_ended = true;
  }
  state_->ended.notify_all();
  state_->thread.join();
}

}  // namespace rw::nccl
