// Graphs of the simulated runtime: what was put on streams while they were captured, to be put on one again.
//
// As the runtime has it (CUDA C++ Programming Guide, "Creating a Graph Using Stream Capture"): nothing runs while it is
// captured, nothing may be waited for, streams join by waiting for events and must be waited for before the end, and
// what is captured keeps the addresses and sizes that it was given.
#include <memory>
#include <utility>

#include "kernels/simt/device_state.cuh"

struct CUgraph_st {
  std::vector<rw::simt::Item> items;
};
struct CUgraphExec_st {
  std::vector<rw::simt::Item> items;
};

using namespace rw::simt;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  Queue& queue = queue_of(stream);
  const std::lock_guard lock(queue.device->mutex);
  if (queue.capture || &queue == &queue.device->default_queue) return tell(cudaErrorStreamCaptureUnsupported);
  queue.capture = std::make_shared<Capture>();
  queue.capture->origin = &queue;
  queue.capture->queues.push_back(&queue);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  Queue& queue = queue_of(stream);
  const std::lock_guard lock(queue.device->mutex);
  *out = nullptr;
  if (!queue.capture) return tell(cudaErrorIllegalState);
  const std::shared_ptr<Capture> capture = queue.capture;
  if (capture->origin != &queue) return tell(cudaErrorStreamCaptureUnmatched);
  bool unjoined = false;
  for (Queue* each : capture->queues) {
    unjoined = unjoined || (each != &queue && each->loose);
    each->capture = nullptr;
    each->loose = false;
  }
  if (capture->broken) return tell(cudaErrorStreamCaptureInvalidated);
  if (unjoined) return tell(cudaErrorStreamCaptureUnjoined);
  *out = new CUgraph_st{std::move(capture->items)};
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Queue& queue = queue_of(stream);
  *status = !queue.capture          ? cudaStreamCaptureStatusNone
            : queue.capture->broken ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long) {
  *out = new CUgraphExec_st{graph->items};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  for (const Item& item : graph->items) put(queue, item);
  return cudaSuccess;
}

}  // extern "C"
