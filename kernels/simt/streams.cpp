// Streams and events of the simulated runtime.
#include <algorithm>

#include "kernels/simt/device_state.cuh"

using namespace rw::simt;  // NOLINT: the functions below are C's

namespace {

// Of what is asked but not waited for: the answer, and the device goes on a little.
cudaError_t told(bool ready) {
  if (ready) return cudaSuccess;
  poll_streams();
  return cudaErrorNotReady;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  auto* stream = new CUstream_st;
  stream->device = device().shared_from_this();
  stream->queue.device = stream->device.get();
  const std::lock_guard lock(stream->device->mutex);
  stream->device->queues.push_back(&stream->queue);
  *out = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return cudaStreamCreate(out); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return cudaStreamCreate(out); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = finish(stream);
  const std::shared_ptr<Device> owner = stream->device;
  const std::lock_guard lock(owner->mutex);
  std::erase(owner->queues, &stream->queue);
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return finish(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { return told(queue_of(stream).work.empty()); }

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Queue& queue = queue_of(stream);
  const std::shared_ptr<Point>& point = event->point;
  if (point->queue == nullptr) return cudaSuccess;  // was never recorded: nothing to wait for
  if (!point->captured) {
    if (queue.capture) {
      queue.capture->broken = true;
      return tell(cudaErrorStreamCaptureIsolation);
    }
    if (!point->reached) put(queue, {.waits = point});
    return cudaSuccess;
  }
  // A stream that waits for captured work takes part in that graph.
  const std::shared_ptr<Capture> graph = point->capture.lock();
  if (!graph || (queue.capture && queue.capture != graph)) return tell(cudaErrorCapturedEvent);
  if (!queue.capture) {
    queue.capture = graph;
    graph->queues.push_back(&queue);
  }
  if (point->queue != &queue) {
    if (point->position >= point->queue->captured_to) point->queue->loose = false;
    queue.loose = true;
  }
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) {
  *out = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) { return cudaEventCreate(out); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  event->point = std::make_shared<Point>();
  event->point->queue = &queue;
  if (queue.capture) {
    event->point->captured = true;
    event->point->capture = queue.capture;
    event->point->position = queue.capture->items.size();
  } else {
    put(queue, {.reaches = event->point});
  }
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->point->captured) return tell(cudaErrorCapturedEvent);
  if (event->point->queue != nullptr && !event->point->reached) run(*event->point->queue, event->point.get());
  return fault_code(device());
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->point->captured) return tell(cudaErrorCapturedEvent);
  if (const cudaError_t fault = fault_code(device()); fault != cudaSuccess) return fault;
  return told(event->point->queue == nullptr || event->point->reached);
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->point->reached || !to->point->reached) return tell(cudaErrorNotReady);
  *ms = static_cast<float>(1e3 * (to->point->at_s - from->point->at_s));
  return cudaSuccess;
}

}  // extern "C"
