// Memory and copies of the simulated runtime.
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "kernels/simt/device_state.cuh"

namespace rw::simt {

DeviceMemory device_memory() { return {device().bytes, device().allocations}; }
void set_memory_limit(size_t bytes) { device().limit = bytes; }

void set_guard(bool on) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  if (!d.blocks.empty()) throw std::logic_error("simt guard: to be set while no device memory is allocated");
  d.guard = on ? std::make_unique<GuardedMemory>() : nullptr;
}
bool guarded() { return device().guard != nullptr; }

DeviceBlock block_at(const std::map<const char*, size_t>& blocks, const void* address) {
  const auto* at = static_cast<const char*>(address);
  const auto next = blocks.upper_bound(at);
  if (next == blocks.begin()) return {};
  const auto& [begin, bytes] = *std::prev(next);
  return at < begin + bytes ? DeviceBlock{begin, bytes} : DeviceBlock{};
}
DeviceBlock device_block(const void* address) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  return block_at(d.blocks, address);
}

namespace {

// Page-locked memory is the process's, whichever thread took it for whichever device.
struct HostBlocks {
  std::mutex mutex;
  std::map<const char*, size_t> blocks;
};
HostBlocks& host_blocks() {
  static HostBlocks all;
  return all;
}

// Whether n bytes from an address on lie in one block of device memory.
bool on_device(const void* address, size_t n) {
  const DeviceBlock block = device_block(address);
  return block.begin != nullptr && static_cast<const char*>(address) + n <= block.begin + block.bytes;
}

// What the guard refuses: a copy whose ends lie elsewhere than its kind says. `to_n` bytes are written, `from_n` read.
bool misplaced(const void* to, size_t to_n, const void* from, size_t from_n, cudaMemcpyKind kind) {
  if (!guarded() || kind == cudaMemcpyDefault) return false;
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  const auto is_right = [](const void* at, size_t n, bool device) {
    return device ? on_device(at, n) : device_block(at).begin == nullptr;
  };
  return !is_right(to, to_n, to_device) || !is_right(from, from_n, from_device);
}

}  // namespace
}  // namespace rw::simt

using namespace rw::simt;  // NOLINT: the functions below are C's

extern "C" {

cudaError_t cudaMalloc(void** out, size_t bytes) {
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  *out = nullptr;
  if (d.limit != 0 && d.bytes + bytes > d.limit) return tell(cudaErrorMemoryAllocation);
  if (bytes == 0) return cudaSuccess;
  void* block = nullptr;
  if (d.guard) block = d.guard->allocate(bytes);
  else if (::posix_memalign(&block, 256, bytes) != 0) block = nullptr;
  if (block == nullptr) return tell(cudaErrorMemoryAllocation);
  const OpenMemory open(d);
  std::memset(block, 0xFF, bytes);
  d.blocks[static_cast<const char*>(block)] = bytes;
  d.bytes += bytes;
  ++d.allocations;
  *out = block;
  return cudaSuccess;
}
cudaError_t cudaFree(void* block) {
  if (block == nullptr) return cudaSuccess;
  cudaDeviceSynchronize();
  Device& d = device();
  const std::lock_guard lock(d.mutex);
  const auto at = d.blocks.find(static_cast<const char*>(block));
  if (at == d.blocks.end()) return tell(cudaErrorInvalidValue);
  d.bytes -= at->second;
  if (d.guard) d.guard->release(block, at->second);
  else ::free(block);
  d.blocks.erase(at);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** out, size_t bytes) {
  *out = nullptr;
  const size_t size = bytes == 0 ? 1 : bytes;
  if (::posix_memalign(out, 4096, size) != 0) return tell(cudaErrorMemoryAllocation);
  HostBlocks& host = host_blocks();
  const std::lock_guard lock(host.mutex);
  host.blocks[static_cast<const char*>(*out)] = size;
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* block) {
  if (block == nullptr) return cudaSuccess;
  cudaDeviceSynchronize();
  HostBlocks& host = host_blocks();
  const std::lock_guard lock(host.mutex);
  if (host.blocks.erase(static_cast<const char*>(block)) == 0) return tell(cudaErrorInvalidValue);
  ::free(block);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** out, size_t bytes, unsigned) { return cudaMallocHost(out, bytes); }
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  const Device& d = device();
  *total = d.limit != 0 ? d.limit : size_t{8} << 30;
  *free_bytes = *total > d.bytes ? *total - d.bytes : 0;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  Device& d = device();
  HostBlocks& host = host_blocks();
  const std::scoped_lock lock(d.mutex, host.mutex);
  *out = {};
  out->type = cudaMemoryTypeUnregistered;
  out->hostPointer = const_cast<void*>(address);
  if (block_at(d.blocks, address).begin != nullptr) {
    out->type = cudaMemoryTypeDevice;
    out->device = d.number;
    out->devicePointer = const_cast<void*>(address);
    out->hostPointer = nullptr;
  } else if (block_at(host.blocks, address).begin != nullptr) {
    out->type = cudaMemoryTypeHost;
    out->device = d.number;
    out->devicePointer = const_cast<void*>(address);
  }
  return cudaSuccess;
}

// ---- copies ----

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  if (bytes == 0) return cudaSuccess;
  if (misplaced(to, bytes, from, bytes, kind)) return tell(cudaErrorInvalidValue);
  put(queue, {.run = [=] {
        std::memcpy(to, from, bytes);
        return true;
      }});
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error != cudaSuccess ? error : finish(nullptr);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  if (width == 0 || height == 0) return cudaSuccess;
  if (misplaced(to, (height - 1) * to_pitch + width, from, (height - 1) * from_pitch + width, kind))
    return tell(cudaErrorInvalidValue);
  put(queue, {.run = [=] {
        for (size_t row = 0; row < height; ++row)
          std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                      width);
        return true;
      }});
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  Queue& queue = queue_of(stream);
  if (bytes == 0) return cudaSuccess;
  if (guarded() && !on_device(at, bytes)) return tell(cudaErrorInvalidValue);
  put(queue, {.run = [=] {
        std::memset(at, value, bytes);
        return true;
      }});
  return cudaSuccess;
}
cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  const cudaError_t error = cudaMemsetAsync(at, value, bytes, nullptr);
  return error != cudaSuccess ? error : finish(nullptr);
}

}  // extern "C"
