#include "libcore/comm/nccl_events.h"

#include "libcore/comm/nccl_check.h"

#include <cuda_runtime_api.h>

namespace rw {
namespace {

// More waits than that between two looks are not measured.
constexpr size_t kMostWaits = 1024;

}  // namespace

EventPool::~EventPool() {
  for (void* event : spare_) cudaEventDestroy(static_cast<cudaEvent_t>(event));
}

void* EventPool::take() {
  if (spare_.empty()) {
    cudaEvent_t event = nullptr;
    RW_EXPECT_CUDA(
        cudaEventCreateWithFlags(&event, clock_ == Clock::timed ? cudaEventDefault : cudaEventDisableTiming));
    return event;
  }
  void* event = spare_.back();
  spare_.pop_back();
  return event;
}

bool event_reached(void* event) {
  const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // no error, and not to be taken for one
    return false;
  }
  RW_EXPECT_CUDA(code);
  return true;
}

bool event_ended(void* event) noexcept {
  const cudaError_t code = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (code == cudaErrorNotReady) cudaGetLastError();
  return code != cudaErrorNotReady;
}

double event_seconds(void* begin, void* end) {
  float ms = 0;
  RW_EXPECT_CUDA(cudaEventElapsedTime(&ms, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)));
  return 1e-3 * static_cast<double>(ms);
}

bool is_capturing(void* stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  RW_EXPECT_CUDA(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status));
  return status != cudaStreamCaptureStatusNone;
}

StallClock::~StallClock() {
  for (const auto& [begin, end] : waits_) {
    events_.give(begin);
    events_.give(end);
  }
}

void StallClock::before() {
  if (waits_.size() == kMostWaits) collect();
  if (waits_.size() == kMostWaits || is_capturing(stream_)) return;
  begin_ = events_.take();
  RW_EXPECT_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(begin_), static_cast<cudaStream_t>(stream_)));
}

void StallClock::after() {
  if (begin_ == nullptr) return;
  void* end = events_.take();
  RW_EXPECT_CUDA(cudaEventRecord(static_cast<cudaEvent_t>(end), static_cast<cudaStream_t>(stream_)));
  waits_.emplace_back(std::exchange(begin_, nullptr), end);
}

void StallClock::collect() {
  while (!waits_.empty() && event_reached(waits_.front().second)) {
    const auto [begin, end] = waits_.front();
    waits_.pop_front();
    seconds_ += event_seconds(begin, end);
    events_.give(begin);
    events_.give(end);
  }
}

double StallClock::take() {
  collect();
  return std::exchange(seconds_, 0);
}

}  // namespace rw
