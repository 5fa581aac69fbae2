// The streams' work: who runs when, and what a fault does.
#include <sched.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include "kernels/simt/device_state.cuh"
#include "kernels/simt/environment.h"

namespace rw::simt {
namespace {

std::shared_ptr<Device>& device_of_thread() {
  thread_local auto d = std::make_shared<Device>();
  return d;
}

// The first fault is the cause; after it nothing runs that was there, and nobody waits for it.
void stop(Device& d, const std::exception& cause) {
  if (d.error != cudaErrorLaunchFailure) d.fault = cause.what();
  d.error = cudaErrorLaunchFailure;
  for (Queue* queue : d.queues) {
    for (const auto& item : queue->work)
      if (item->reaches) item->reaches->reached = true;
    queue->work.clear();
  }
}

// The queue's first piece of work, or one that it waits for; whether anything could run.
bool advance(Queue& queue) {
  if (queue.running || queue.work.empty()) return false;
  const std::shared_ptr<Item> head = queue.work.front();
  bool done = false, moved = false;
  queue.running = true;
  try {
    if (head->waits) {
      moved = !head->waits->reached && advance(*head->waits->queue);
      done = head->waits->reached;
    } else {
      done = !head->run || head->run();
    }
  } catch (const std::exception& e) {
    stop(*queue.device, e);
    moved = true;
  }
  queue.running = false;
  if (!done || queue.work.empty() || queue.work.front() != head) return moved;
  if (head->reaches) {
    head->reaches->at_s = clock_s();
    head->reaches->reached = true;
  }
  queue.work.pop_front();
  return true;
}

bool advance_each(Device& d) {
  bool moved = false;
  for (Queue* queue : std::vector<Queue*>(d.queues)) moved = advance(*queue) || moved;
  return moved;
}

// Another rank is waited for: leaves it the processor, and the device to this process's other threads.
void pause(Device& d, int times) {
  d.mutex.unlock();
  if (times < 20) {
    ::sched_yield();
  } else {
    const timespec t{0, 50'000};
    ::nanosleep(&t, nullptr);
  }
  d.mutex.lock();
}

}  // namespace

Device::Device()
    : limit(static_cast<size_t>(bytes_from("RANKWRIGHT_SIMT_MEMORY", 0))),
      devices(static_cast<int>(number_from("RANKWRIGHT_SIMT_DEVICES", -1, 8))),
      capability(capability_from("RANKWRIGHT_SIMT_CAPABILITY", 90)) {
  if (number_from("RANKWRIGHT_SIMT_GUARD", 0, 0) != 0) guard = std::make_unique<GuardedMemory>();
  default_queue.device = this;
  queues.push_back(&default_queue);
}

Device& device() { return *device_of_thread(); }

cudaError_t tell(cudaError_t error) {
  if (error != cudaSuccess) device().error = error;
  return error;
}

Queue& queue_of(cudaStream_t stream) {
  if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) return device().default_queue;
  if (device_of_thread() != stream->device) device_of_thread() = stream->device;
  return stream->queue;
}

cudaError_t fault_code(const Device& d) {
  return d.error == cudaErrorLaunchFailure ? cudaErrorLaunchFailure : cudaSuccess;
}

void put(Queue& queue, Item item) {
  const std::lock_guard lock(queue.device->mutex);
  if (!queue.capture) return queue.work.push_back(std::make_shared<Item>(std::move(item)));
  queue.capture->items.push_back(std::move(item));
  queue.loose = true;
  queue.captured_to = queue.capture->items.size();
}

void run(Queue& queue, const Point* until) {
  Device& d = *queue.device;
  const std::lock_guard lock(d.mutex);
  if (queue.running) return;  // a stream that waits for itself has nothing to wait for
  const OpenMemory open(d);
  int idle = 0;
  while (!queue.work.empty() && (until == nullptr || !until->reached)) {
    if (advance(queue) || advance_each(d)) idle = 0;
    else pause(d, idle++);
  }
}

double clock_s() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void enqueue(cudaStream_t stream, std::function<void()> work) {
  put(queue_of(stream), {.run = [work = std::move(work)] {
        work();
        return true;
      }});
}
void enqueue_polled(cudaStream_t stream, std::function<bool()> work) {
  put(queue_of(stream), {.run = std::move(work)});
}

void launch(const Launch& launch, cudaStream_t stream, std::function<void()> body) {
  constexpr size_t kUnasked = 48 << 10;
  Launch here = launch;
  const Device& d = *queue_of(stream).device;
  here.most_shared_bytes = static_cast<size_t>(shared_bytes_of(d.capability));
  const auto asked = d.dynamic_shared.find(launch.address);
  const bool may_have_it = asked != d.dynamic_shared.end() && asked->second >= launch.shared_bytes;
  here.unasked_shared_bytes = may_have_it ? here.most_shared_bytes : kUnasked;
  enqueue(stream, [here, body = std::move(body)] { run_grid(here, body); });
}

cudaError_t finish(cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  if (queue.capture) {
    queue.capture->broken = true;
    return tell(cudaErrorStreamCaptureUnsupported);
  }
  run(queue, nullptr);
  return fault_code(*queue.device);
}

bool poll_streams() {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (std::all_of(d.queues.begin(), d.queues.end(), [](const Queue* queue) { return queue->work.empty(); }))
    return false;
  const OpenMemory open(d);
  return advance_each(d);
}

const std::string& fault_text() { return device().fault; }

}  // namespace rw::simt
