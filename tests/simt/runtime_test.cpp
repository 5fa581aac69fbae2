// The simulated runtime: streams, graphs, memory, and work that waits for other ranks.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/error.h"
#include "kernels/simt/runtime.cuh"

using namespace rw;

namespace {

class OwnStream {
 public:
  OwnStream() { RW_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  operator cudaStream_t() const { return stream_; }  // NOLINT: as the runtime's functions take it

 private:
  cudaStream_t stream_ = nullptr;
};
class OwnEvent {
 public:
  OwnEvent() { RW_CUDA(cudaEventCreate(&event_)); }
  ~OwnEvent() { cudaEventDestroy(event_); }
  OwnEvent(const OwnEvent&) = delete;
  OwnEvent& operator=(const OwnEvent&) = delete;
  operator cudaEvent_t() const { return event_; }  // NOLINT

 private:
  cudaEvent_t event_ = nullptr;
};
// cudaGetLastError is what gives a refused call's code back, so that it does not linger.
cudaError_t code_of(cudaError_t code) {
  cudaGetLastError();
  return code;
}

}  // namespace

TEST_CASE("simt: whose memory an address is in") {
  void *device = nullptr, *pinned = nullptr;
  int own = 0;
  RW_CUDA(cudaMalloc(&device, 100));
  RW_CUDA(cudaHostAlloc(&pinned, 100, cudaHostAllocDefault));
  const auto type_of = [](const void* at) {
    cudaPointerAttributes a{};
    RW_CUDA(cudaPointerGetAttributes(&a, at));
    return a.type;
  };
  for (const int i : {0, 1, 99}) {
    CHECK(type_of(static_cast<char*>(device) + i) == cudaMemoryTypeDevice);
    CHECK(type_of(static_cast<char*>(pinned) + i) == cudaMemoryTypeHost);
  }
  CHECK(type_of(static_cast<char*>(device) + 100) != cudaMemoryTypeDevice);
  CHECK(type_of(&own) == cudaMemoryTypeUnregistered);
  CHECK(type_of(nullptr) == cudaMemoryTypeUnregistered);
  CHECK(simt::device_block(static_cast<char*>(device) + 7).begin == device);
  CHECK(simt::device_block(static_cast<char*>(device) + 7).bytes == 100);
  RW_CUDA(cudaFree(device));
  RW_CUDA(cudaFreeHost(pinned));
  CHECK(type_of(device) == cudaMemoryTypeUnregistered);
  CHECK(code_of(cudaFree(&own)) == cudaErrorInvalidValue);
  CHECK(code_of(cudaFreeHost(&own)) == cudaErrorInvalidValue);
}

TEST_CASE("simt: what is captured runs when its graph is launched, as often as that is") {
  const OwnStream s;
  int x = 0, host = 5, copied = 0;
  RW_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  cudaStreamCaptureStatus status{};
  RW_CUDA(cudaStreamIsCapturing(s, &status));
  CHECK(status == cudaStreamCaptureStatusActive);
  simt::enqueue(s, [&] { ++x; });
  RW_CUDA(cudaMemcpyAsync(&copied, &host, sizeof host, cudaMemcpyDefault, s));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  RW_CUDA(cudaStreamEndCapture(s, &graph));
  RW_CUDA(cudaStreamIsCapturing(s, &status));
  CHECK(status == cudaStreamCaptureStatusNone);
  RW_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  RW_CUDA(cudaGraphDestroy(graph));
  RW_CUDA(cudaStreamSynchronize(s));
  CHECK((x == 0 && copied == 0));
  for (int i = 1; i <= 3; ++i) {
    host = 10 * i;
    RW_CUDA(cudaGraphLaunch(exec, s));
    CHECK(x == i - 1);
    RW_CUDA(cudaStreamSynchronize(s));
    CHECK((x == i && copied == 10 * i));
  }
  RW_CUDA(cudaGraphExecDestroy(exec));
}

TEST_CASE("simt: another stream joins a graph by events, and must be waited for before its end") {
  const OwnStream s, side;
  const OwnEvent forked, joined, outside;
  std::string order;
  const auto capture = [&](bool join) {
    RW_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    simt::enqueue(s, [&] { order += 'a'; });
    RW_CUDA(cudaEventRecord(forked, s));
    RW_CUDA(cudaStreamWaitEvent(side, forked, 0));
    simt::enqueue(side, [&] { order += 'b'; });
    if (join) {
      RW_CUDA(cudaEventRecord(joined, side));
      RW_CUDA(cudaStreamWaitEvent(s, joined, 0));
    }
    simt::enqueue(s, [&] { order += 'c'; });
    cudaGraph_t graph = nullptr;
    const cudaError_t code = code_of(cudaStreamEndCapture(s, &graph));
    if (code != cudaSuccess) {
      CHECK(graph == nullptr);
      return code;
    }
    cudaGraphExec_t exec = nullptr;
    RW_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    RW_CUDA(cudaGraphDestroy(graph));
    RW_CUDA(cudaGraphLaunch(exec, s));
    RW_CUDA(cudaGraphLaunch(exec, s));
    RW_CUDA(cudaStreamSynchronize(s));
    RW_CUDA(cudaGraphExecDestroy(exec));
    return code;
  };
  CHECK(capture(true) == cudaSuccess);
  CHECK(order == "abcabc");
  order.clear();
  CHECK(capture(false) == cudaErrorStreamCaptureUnjoined);
  // Both streams are as they were.
  simt::enqueue(side, [&] { order += 'd'; });
  RW_CUDA(cudaStreamSynchronize(side));
  CHECK(order == "d");
  // A wait for work that is in no graph.
  RW_CUDA(cudaEventRecord(outside, side));
  RW_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  CHECK(code_of(cudaStreamWaitEvent(s, outside, 0)) == cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  CHECK(code_of(cudaStreamEndCapture(s, &graph)) == cudaErrorStreamCaptureInvalidated);
}

TEST_CASE("simt: nothing may be waited for while it is captured") {
  const OwnStream s;
  const OwnEvent event;
  cudaGraph_t graph = nullptr;
  RW_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  RW_CUDA(cudaEventRecord(event, s));
  CHECK(code_of(cudaEventSynchronize(event)) == cudaErrorCapturedEvent);
  CHECK(code_of(cudaEventQuery(event)) == cudaErrorCapturedEvent);
  CHECK(code_of(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal)) == cudaErrorStreamCaptureUnsupported);
  CHECK(code_of(cudaStreamSynchronize(s)) == cudaErrorStreamCaptureUnsupported);
  CHECK(code_of(cudaStreamEndCapture(s, &graph)) == cudaErrorStreamCaptureInvalidated);
  CHECK(code_of(cudaStreamEndCapture(s, &graph)) == cudaErrorIllegalState);
  RW_CUDA(cudaStreamSynchronize(s));
}

TEST_CASE("simt: work that waits is asked again; meanwhile the other streams go on") {
  const OwnStream a, b;
  int asked = 0;
  bool after = false, other = false;
  simt::enqueue_polled(a, [&] { return ++asked >= 5 && other; });
  simt::enqueue(a, [&] { after = true; });
  simt::enqueue(b, [&] { other = true; });
  CHECK(asked == 0);
  CHECK(simt::poll_streams());  // b's, while a's head is not done
  CHECK((other && !after && asked == 1));
  CHECK(!simt::poll_streams());
  CHECK(asked == 2);
  RW_CUDA(cudaStreamSynchronize(a));
  CHECK((asked == 5 && after));
  CHECK(!simt::poll_streams());
  // Waiting for one stream runs what it takes of others, here of each other.
  other = false;
  simt::enqueue_polled(a, [&] { return other; });
  simt::enqueue(b, [&] { other = true; });
  RW_CUDA(cudaStreamSynchronize(a));
  CHECK(other);
}

TEST_CASE("simt: who asks whether it is done gets the device on") {
  const OwnStream s;
  const OwnEvent event;
  int x = 0;
  simt::enqueue(s, [&] { x = 1; });
  simt::enqueue_polled(s, [&] { return ++x == 4; });
  RW_CUDA(cudaEventRecord(event, s));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  CHECK(x == 1);
  int queries = 0;
  while (cudaEventQuery(event) == cudaErrorNotReady) ++queries;
  CHECK((x == 4 && queries == 4));
  simt::enqueue(s, [&] { x = 9; });
  CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
  CHECK(cudaStreamQuery(s) == cudaSuccess);
  CHECK(x == 9);
}

TEST_CASE("simt: work that waits and fails stops its device, in its own words") {
  const OwnStream a, b;
  const OwnEvent event;
  bool after = false;
  simt::enqueue_polled(a, []() -> bool { throw std::runtime_error("rank 1 is gone"); });
  RW_CUDA(cudaEventRecord(event, a));
  simt::enqueue(a, [&] { after = true; });
  RW_CUDA(cudaStreamWaitEvent(b, event, 0));
  simt::enqueue(b, [&] { after = true; });
  CHECK(cudaStreamSynchronize(b) == cudaErrorLaunchFailure);
  CHECK(simt::fault_text() == "rank 1 is gone");
  CHECK(std::string(cudaGetErrorString(cudaErrorLaunchFailure)) == "rank 1 is gone");
  CHECK(cudaEventQuery(event) == cudaErrorLaunchFailure);
  CHECK(!after);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaStreamSynchronize(a) == cudaSuccess);
}

TEST_CASE("simt: ranks that are threads wait for each other on their own devices") {
  // Two streams each, and each rank waits for the other one first: neither may hold the other up.
  std::atomic<int> arrived[2] = {0, 0};
  const auto rank = [&](int me) {
    const OwnStream streams[2];
    for (int i = 0; i < 2; ++i)
      simt::enqueue_polled(streams[i], [&arrived, i, counted = false]() mutable {
        if (!counted) ++arrived[i];
        counted = true;
        return arrived[i] == 2;
      });
    RW_CUDA(cudaStreamSynchronize(streams[me]));
    RW_CUDA(cudaStreamSynchronize(streams[1 - me]));
  };
  std::thread other([&] { rank(1); });
  rank(0);
  other.join();
  CHECK((arrived[0] == 2 && arrived[1] == 2));
}

TEST_CASE("simt: a captured wait counts anew in each replay") {
  const OwnStream s;
  int done = 0;
  RW_CUDA(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
  simt::enqueue_polled(s, [&done, times = 0]() mutable {
    if (++times < 3) return false;
    done += times;
    return true;
  });
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  RW_CUDA(cudaStreamEndCapture(s, &graph));
  RW_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 1; i <= 3; ++i) {
    RW_CUDA(cudaGraphLaunch(exec, s));
    RW_CUDA(cudaStreamSynchronize(s));
    CHECK(done == 3 * i);
  }
  RW_CUDA(cudaGraphExecDestroy(exec));
  RW_CUDA(cudaGraphDestroy(graph));
}

TEST_CASE("simt: a thread that uses another one's stream works on its device") {
  const OwnStream s;
  void* block = nullptr;
  RW_CUDA(cudaMalloc(&block, 10));
  size_t before = 0, after = 0;
  std::thread other([&] {
    before = simt::device_memory().bytes;
    RW_CUDA(cudaStreamSynchronize(s));
    after = simt::device_memory().bytes;
    RW_CUDA(cudaFree(block));
  });
  other.join();
  CHECK((before == 0 && after == 10));
  CHECK(simt::device_memory().bytes == 0);
}

TEST_CASE("simt: guarded memory is reused, and copies must lie where their kind says") {
  simt::set_guard(true);
  CHECK(simt::guarded());
  void *a = nullptr, *b = nullptr, *c = nullptr;
  RW_CUDA(cudaMalloc(&a, 1000));
  RW_CUDA(cudaMalloc(&b, 5000));
  CHECK(reinterpret_cast<uintptr_t>(b) % 256 == 0);
  CHECK_THROWS_AS(simt::set_guard(false), std::logic_error);
  RW_CUDA(cudaFree(a));
  RW_CUDA(cudaMalloc(&c, 900));
  CHECK(c == a);
  std::vector<char> host(5000, 7), back(5000);
  RW_CUDA(cudaMemcpy(b, host.data(), 5000, cudaMemcpyHostToDevice));
  RW_CUDA(cudaMemcpy(back.data(), b, 5000, cudaMemcpyDeviceToHost));
  CHECK(back == host);
  CHECK(code_of(cudaMemcpy(host.data(), back.data(), 1, cudaMemcpyHostToDevice)) == cudaErrorInvalidValue);
  CHECK(code_of(cudaMemcpy(b, host.data(), 5001, cudaMemcpyHostToDevice)) == cudaErrorInvalidValue);
  CHECK(code_of(cudaMemcpy(b, c, 1, cudaMemcpyHostToDevice)) == cudaErrorInvalidValue);
  CHECK(code_of(cudaMemcpy(b, c, 1, cudaMemcpyDeviceToHost)) == cudaErrorInvalidValue);
  CHECK(code_of(cudaMemset(host.data(), 0, 1)) == cudaErrorInvalidValue);
  RW_CUDA(cudaMemcpy(b, c, 900, cudaMemcpyDeviceToDevice));
  RW_CUDA(cudaFree(b));
  RW_CUDA(cudaFree(c));
  simt::set_guard(false);
}
