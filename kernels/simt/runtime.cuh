// The CUDA runtime on the host, as far as Rankwright calls it: the functions of cuda_runtime_api.h are defined in
// memory.cpp, streams.cpp, graphs.cpp and devices.cpp, and what they hide is here. Work put on a stream is not done
// until somebody waits for it, so that code that forgets to wait reads poison.
//
// Device memory is host memory filled with 0xFF (NaN); under AddressSanitizer kernels that leave it are caught. A fault
// in a kernel is told by the next wait on its device, as cudaErrorLaunchFailure, and by fault_text().
//
// Every host thread has a device of its own, whatever number it gives it: ranks may be threads. A thread that uses a
// stream that another one made works on that one's device from then on.
//
// From the environment, for whole programs; what is no such number is a CudaError of the first call:
//   RANKWRIGHT_SIMT_GUARD=1         set_guard(true)
//   RANKWRIGHT_SIMT_MEMORY=512M     set_memory_limit(512 << 20): bytes, or K, M, G, T (binary)
//   RANKWRIGHT_SIMT_DEVICES=2       set_devices(2)
//   RANKWRIGHT_SIMT_CAPABILITY=80   set_capability(80): times ten, without a point
#pragma once
#include <cstddef>
#include <functional>
#include <string>

#include "kernels/simt/block.cuh"

namespace rw::simt {

template <class Kernel>
const void* address_of(Kernel* kernel) {
  return reinterpret_cast<const void*>(kernel);
}
// Puts a kernel on a stream; `body` holds its arguments by value.
void launch(const Launch& launch, cudaStream_t stream, std::function<void()> body);
// A kernel with its arguments, converted to what the caller gave and held by value, as a launch holds them.
template <class Kernel, class... Args>
std::function<void()> bind_kernel(Kernel kernel, Args... args) {
  return [kernel, args...] { kernel(args...); };
}
// Puts anything on a stream: what libraries (products, collectives) do.
void enqueue(cudaStream_t stream, std::function<void()> work);
// The same for what waits for others: done when `work` returns true, and called until then, from whichever call moves
// the streams; it never blocks. What it throws stops the device as a kernel's fault does, and is the fault's text. When
// captured, each replay calls a copy of `work` as it was when it was put there: what it counts it holds by value.
// Inside, device memory is open to this host thread alone: what other ranks are to see goes through the host's memory.
void enqueue_polled(cudaStream_t stream, std::function<bool()> work);
// Does all that waits on a stream, and no more than that takes of other streams; while it waits for polled work, the
// device's other streams move too. Returns cudaSuccess, or the fault's code.
cudaError_t finish(cudaStream_t stream);
// Moves each stream of the device by one piece of work where one can run, without blocking; false: none could. For
// hosts that wait for something else. cudaEventQuery and cudaStreamQuery do it when they answer "not ready".
bool poll_streams();
// Of the last fault on this host thread: the kernel, block and thread; "" when there was none.
const std::string& fault_text();

// Of this host thread: allocated now, and how often memory was asked for since the start.
struct DeviceMemory {
  size_t bytes = 0, allocations = 0;
};
DeviceMemory device_memory();
// The most that device memory may hold (tests of running out); 0: no limit.
void set_memory_limit(size_t bytes);

// The guard: device memory is inaccessible but while the device's work runs, so that a host that reads or writes it
// crashes, saying so; copies and cuda_ops() of this build's device refuse operands that lie elsewhere. To be set while
// nothing is allocated.
void set_guard(bool on);
bool guarded();
// The piece of device memory that holds an address; begin null: none does.
struct DeviceBlock {
  const char* begin = nullptr;
  size_t bytes = 0;
};
DeviceBlock device_block(const void* address);
// How many devices this process sees; -1: the driver is too old for any. Without being told: 8.
void set_devices(int n);
// The compute capability that devices say they have, times ten, of those that shared_bytes_of knows (environment.h):
// with the shared memory that such devices have. Without being told: 90.
void set_capability(int capability);

}  // namespace rw::simt
