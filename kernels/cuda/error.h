// What the CUDA runtime refused, as an exception: the call or kernel, file and line, the runtime's own words.
#pragma once
#include <stdexcept>
#include <string>

namespace rw::cuda {

class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
class OutOfDeviceMemory : public CudaError {
 public:
  using CudaError::CudaError;
};

// `code` is a cudaError_t. OutOfDeviceMemory or CudaError when it is not success.
void check(int code, const char* call, const char* file, int line);
// After a launch: a shape that the device refuses. What happens while the kernel runs is told by the next wait.
void check_launch(const char* kernel, const char* file, int line);

}  // namespace rw::cuda

#define RW_CUDA(call) ::rw::cuda::check(static_cast<int>(call), #call, __FILE__, __LINE__)
