// The CUDA runtime on the host, as far as Rankwright calls it: the functions of cuda_runtime_api.h are defined in
// runtime*.cpp, and what they hide is here. Work put on a stream is not done until somebody waits for it, so that code
// that forgets to wait reads poison.
//
// Device memory is host memory filled with 0xFF (NaN); under AddressSanitizer kernels that leave it are caught. A fault
// in a kernel is told by the next wait on its stream, as cudaErrorLaunchFailure, and by fault_text().
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "kernels/simt/block.cuh"

namespace rw::simt {

// Puts a kernel on a stream; `body` holds its arguments by value.
void launch(const Launch& launch, cudaStream_t stream, std::function<void()> body);
// A kernel with its arguments, converted to what the caller gave and held by value, as a launch holds them.
template <class Kernel, class... Args>
std::function<void()> bind_kernel(Kernel kernel, Args... args) {
  return [kernel, args...] { kernel(args...); };
}
// Puts anything on a stream: what libraries (products, collectives) do.
void enqueue(cudaStream_t stream, std::function<void()> work);
// Does all that waits on a stream. Returns cudaSuccess, or the fault's code.
cudaError_t finish(cudaStream_t stream);
// Of the last fault on this host thread: the kernel, block and thread; "" when there was none.
const std::string& fault_text();

// Of this host thread: allocated now, and how often memory was asked for since the start.
struct DeviceMemory {
  size_t bytes = 0, allocations = 0;
};
DeviceMemory device_memory();
// The most that device memory may hold (tests of running out); 0: no limit.
void set_memory_limit(size_t bytes);

}  // namespace rw::simt
