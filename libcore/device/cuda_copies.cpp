#include "libcore/device/cuda_copies.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>

#include "kernels/cuda/error.h"

namespace rw {
namespace {

bool is_page_locked(const void* address) {
  cudaPointerAttributes attributes{};
  RW_CUDA(cudaPointerGetAttributes(&attributes, address));
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace

struct CudaCopies::State {
  explicit State(int device_index) : device(device_index) {
    RW_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    cudaStreamSynchronize(stream);
    for (size_t i = 0; i < halves.size(); ++i) {
      if (filled[i] != nullptr) cudaEventDestroy(filled[i]);
      cudaFreeHost(halves[i]);
    }
    cudaStreamDestroy(stream);
  }

  bool has_halves() {
    if (halves[1] != nullptr || refused) return !refused;
    for (size_t i = 0; i < halves.size(); ++i) {
      RW_CUDA(cudaEventCreateWithFlags(&filled[i], cudaEventDisableTiming));
      if (cudaHostAlloc(reinterpret_cast<void**>(&halves[i]), kHalfBytes, cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();
        halves[i] = nullptr;
        refused = true;
        return false;
      }
    }
    return true;
  }

  void straight(void* host, const void* from, int64_t bytes) {
    RW_CUDA(cudaMemcpyAsync(host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream));
    RW_CUDA(cudaStreamSynchronize(stream));
  }

  void through_halves(char* host, const char* from, int64_t bytes) {
    const int64_t pieces = (bytes + kHalfBytes - 1) / kHalfBytes;
    const auto size_of = [&](int64_t i) { return static_cast<size_t>(std::min(kHalfBytes, bytes - i * kHalfBytes)); };
    const auto fill = [&](int64_t i) {
      const auto half = static_cast<size_t>(i % 2);
      RW_CUDA(cudaMemcpyAsync(halves[half], from + i * kHalfBytes, size_of(i), cudaMemcpyDeviceToHost, stream));
      RW_CUDA(cudaEventRecord(filled[half], stream));
    };
    fill(0);
    for (int64_t i = 0; i < pieces; ++i) {
      if (i + 1 < pieces) fill(i + 1);
      const auto half = static_cast<size_t>(i % 2);
      RW_CUDA(cudaEventSynchronize(filled[half]));
      std::memcpy(host + i * kHalfBytes, halves[half], size_of(i));
    }
  }

  int device;
  std::mutex mutex;
  cudaStream_t stream = nullptr;
  std::array<char*, 2> halves{};  // made at the first copy that needs them
  std::array<cudaEvent_t, 2> filled{};
  bool refused = false;  // there was no page-locked memory for them
};

CudaCopies::CudaCopies(int device) : s_(std::make_unique<State>(device)) {}
CudaCopies::~CudaCopies() = default;

void CudaCopies::to_host(void* host, const void* device, int64_t bytes) {
  if (bytes <= 0) return;
  const std::lock_guard lock(s_->mutex);
  RW_CUDA(cudaSetDevice(s_->device));  // of the calling thread, which may be any
  if (is_page_locked(host) || !s_->has_halves()) s_->straight(host, device, bytes);
  else s_->through_halves(static_cast<char*>(host), static_cast<const char*>(device), bytes);
}

}  // namespace rw
