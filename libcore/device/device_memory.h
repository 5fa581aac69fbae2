// Where the blocks of an arena come from when they do not lie in the host's memory.
#pragma once
#include <cstdint>
#include <string>

namespace rw {

class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  // A zeroed block, aligned to 256 bytes; null when there is not as much left. Slow: for the start, never in a step.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* block) = 0;
  // Page-locked memory of the host, zeroed, from and to which copies go beside kernels; null when there is none left.
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void release_host(void* block) = 0;
  // Copies from the device, beside what its stream does, and returns when the bytes are there. From any thread of the
  // process. Whoever calls it sees to it that they are made and do not change meanwhile.
  virtual void copy_to_host(void* host, const void* device, int64_t bytes) = 0;
  virtual int64_t free_bytes() const = 0;
  virtual std::string name() const = 0;  // "cuda:0 (NVIDIA H200)": for messages
};

}  // namespace rw
