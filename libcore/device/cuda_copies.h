// Copies from a GPU beside its work. What goes to memory that is not page-locked goes by way of two page-locked halves:
// while the device fills one, the host empties the other. (Left to itself, the driver would do the two in turns.)
#pragma once
#include <cstdint>
#include <memory>

namespace rw {

class CudaCopies {
 public:
  // 10 us of PCIe 4.0 x16, above the cost of a copy's start, and several of them to what a checkpoint asks for at a
  // time.
  static constexpr int64_t kHalfBytes = 256 << 10;
  explicit CudaCopies(int device);
  ~CudaCopies();
  CudaCopies(const CudaCopies&) = delete;
  CudaCopies& operator=(const CudaCopies&) = delete;

  // Returns when the bytes are there. From any thread; calls take turns. Throws cuda::CudaError.
  void to_host(void* host, const void* device, int64_t bytes);

 private:
  struct State;
  std::unique_ptr<State> s_;
};

}  // namespace rw
