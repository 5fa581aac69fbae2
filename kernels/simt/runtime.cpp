#include "kernels/simt/runtime.cuh"

#include <cstdlib>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <utility>

namespace rw::simt {
namespace {

// A point of a stream that others may wait for.
struct Point {
  bool reached = false;
  struct Queue* queue = nullptr;  // on which it stands; null: recorded nowhere yet
  double at_s = 0;
};

struct Queue {
  std::deque<std::function<void()>> work;
  bool running = false;
};

}  // namespace
}  // namespace rw::simt

// The runtime's opaque handles, as they are here.
struct CUstream_st {
  rw::simt::Queue queue;
};
struct CUevent_st {
  std::shared_ptr<rw::simt::Point> point = std::make_shared<rw::simt::Point>();
};

namespace rw::simt {
namespace {

// Of a host thread, which is a rank: it has a device of its own.
struct Device {
  CUstream_st default_stream;
  std::map<void*, size_t> blocks;  // device memory by address
  size_t bytes = 0, limit = 0, allocations = 0;
  std::string fault;
  cudaError_t error = cudaSuccess;  // of the last call, until it is asked for
};
Device& device() {
  thread_local Device d;
  return d;
}

double clock_s() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Queue& queue_of(cudaStream_t stream) {
  const bool is_default = stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
  return is_default ? device().default_stream.queue : stream->queue;
}

// Does the queue's work, in order, until `until` is reached (null: all of it).
void run(Queue& queue, const Point* until) {
  if (queue.running) return;  // a stream that waits for itself has nothing to wait for
  queue.running = true;
  while (!queue.work.empty() && (until == nullptr || !until->reached)) {
    const std::function<void()> work = std::move(queue.work.front());
    queue.work.pop_front();
    try {
      work();
    } catch (const std::exception& e) {
      if (device().error != cudaErrorLaunchFailure) device().fault = e.what();  // the first is the cause
      device().error = cudaErrorLaunchFailure;
      queue.work.clear();
    }
  }
  queue.running = false;
}

cudaError_t tell(cudaError_t error) {
  if (error != cudaSuccess) device().error = error;
  return error;
}

}  // namespace

void enqueue(cudaStream_t stream, std::function<void()> work) { queue_of(stream).work.push_back(std::move(work)); }

void launch(const Launch& launch, cudaStream_t stream, std::function<void()> body) {
  enqueue(stream, [launch, body = std::move(body)] { run_grid(launch, body); });
}

cudaError_t finish(cudaStream_t stream) {
  run(queue_of(stream), nullptr);
  return device().error;
}

const std::string& fault_text() { return device().fault; }
DeviceMemory device_memory() { return {device().bytes, device().allocations}; }
void set_memory_limit(size_t bytes) { device().limit = bytes; }

}  // namespace rw::simt

using namespace rw::simt;  // NOLINT: the functions below are C's

extern "C" {

// ---- memory ----

cudaError_t cudaMalloc(void** out, size_t bytes) {
  Device& d = device();
  *out = nullptr;
  if (d.limit != 0 && d.bytes + bytes > d.limit) return tell(cudaErrorMemoryAllocation);
  if (bytes == 0) return cudaSuccess;
  void* block = nullptr;
  if (::posix_memalign(&block, 256, bytes) != 0) return tell(cudaErrorMemoryAllocation);
  std::memset(block, 0xFF, bytes);
  d.blocks[block] = bytes;
  d.bytes += bytes;
  ++d.allocations;
  *out = block;
  return cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  if (block == nullptr) return cudaSuccess;
  Device& d = device();
  cudaDeviceSynchronize();
  const auto at = d.blocks.find(block);
  if (at == d.blocks.end()) return tell(cudaErrorInvalidValue);
  d.bytes -= at->second;
  d.blocks.erase(at);
  ::free(block);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  *out = nullptr;
  return ::posix_memalign(out, 4096, bytes == 0 ? 1 : bytes) == 0 ? cudaSuccess : tell(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* block) {
  ::free(block);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  *total = device().limit != 0 ? device().limit : size_t{8} << 30;
  *free_bytes = *total > device().bytes ? *total - device().bytes : 0;
  return cudaSuccess;
}

// ---- copies ----

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
  if (bytes > 0) enqueue(stream, [=] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return finish(nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t stream) {
  enqueue(stream, [=] {
    for (size_t row = 0; row < height; ++row)
      std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  if (bytes > 0) enqueue(stream, [=] { std::memset(at, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  cudaMemsetAsync(at, value, bytes, nullptr);
  return finish(nullptr);
}

// ---- streams and events ----

cudaError_t cudaStreamCreate(cudaStream_t* out) {
  *out = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned) { return cudaStreamCreate(out); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned, int) { return cudaStreamCreate(out); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const cudaError_t error = finish(stream);
  delete stream;
  return error;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return finish(stream); }
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return queue_of(stream).work.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (event->point->queue == nullptr) return cudaSuccess;  // was never recorded: nothing to wait for
  enqueue(stream, [point = event->point] {
    if (!point->reached) run(*point->queue, point.get());
  });
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
  event->point = std::make_shared<Point>();
  event->point->queue = &queue_of(stream);
  enqueue(stream, [point = event->point] {
    point->at_s = clock_s();
    point->reached = true;
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->point->queue != nullptr && !event->point->reached) run(*event->point->queue, event->point.get());
  return device().error;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->point->queue == nullptr || event->point->reached ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
  if (!from->point->reached || !to->point->reached) return tell(cudaErrorNotReady);
  *ms = static_cast<float>(1e3 * (to->point->at_s - from->point->at_s));
  return cudaSuccess;
}

// ---- devices and errors ----

// What other streams still hold is done by their own waits: a host thread knows its default stream alone, and those it
// made are waited for by name.
cudaError_t cudaDeviceSynchronize() { return finish(nullptr); }
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* i) {
  *i = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int i) { return i == 0 ? cudaSuccess : tell(cudaErrorInvalidDevice); }
cudaError_t cudaGetLastError() {
  device().fault.clear();
  return std::exchange(device().error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return device().error; }
const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorNotReady: return "cudaErrorNotReady";
    default: return "cudaErrorUnknown";
  }
}
const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorLaunchFailure && !device().fault.empty()) return device().fault.c_str();
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorNotReady: return "device not ready";
    default: return "unknown error";
  }
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
// An H100's figures, as far as launch shapes ask for them (compute capability 9.0, CUDA C++ Programming Guide).
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
  switch (which) {
    case cudaDevAttrMultiProcessorCount: *value = 4; break;  // few: a grid that is sized by it stays small here
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(kMostSharedBytes); break;
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    default: return tell(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

}  // extern "C"
