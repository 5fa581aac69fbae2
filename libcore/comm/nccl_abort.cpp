#include "libcore/comm/nccl_abort.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "libcore/base/log.h"

namespace rw {
namespace {

constexpr auto kMostWait = std::chrono::seconds(5);

void abort_all(const std::vector<void*>& comms) {
  ncclGroupStart();
  for (void* comm : comms) ncclCommAbort(static_cast<ncclComm_t>(comm));
  ncclGroupEnd();
}

}  // namespace

struct NcclAborter::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<void*> comms;
  std::chrono::steady_clock::time_point until;
  bool is_started = false, is_done = false, is_ended = false;
  std::thread thread;

  void run() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_started || is_ended; });
    if (!is_started) return;
    lock.unlock();
    abort_all(comms);
    lock.lock();
    is_done = true;
    changed.notify_all();
  }
};

NcclAborter::NcclAborter() : state_(std::make_shared<State>()) {
  int device = 0;
  cudaGetDevice(&device);
  state_->thread = std::thread([device, s = state_] {
    cudaSetDevice(device);  // NCCL sets it back to what it was: another one would get a context for that
    s->run();
  });
}

NcclAborter::~NcclAborter() {
  const bool is_settled = settle();
  {
    std::lock_guard lock(state_->mutex);
    state_->is_ended = true;
  }
  state_->changed.notify_all();
  if (is_settled) {
    state_->thread.join();
    return;
  }
  log_warning("NCCL's communicators were not aborted within {} s: they are left to end with the process",
              kMostWait.count());
  state_->thread.detach();
}

void NcclAborter::start(std::vector<void*> comms) noexcept {
  {
    std::lock_guard lock(state_->mutex);
    state_->comms = std::move(comms);
    state_->until = std::chrono::steady_clock::now() + kMostWait;
    state_->is_started = true;
  }
  state_->changed.notify_all();
}

bool NcclAborter::settle() noexcept {
  std::unique_lock lock(state_->mutex);
  if (!state_->is_started) return true;
  return state_->changed.wait_until(lock, state_->until, [this] { return state_->is_done; });
}

}  // namespace rw
