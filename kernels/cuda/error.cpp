#include "kernels/cuda/error.h"

#if defined(RW_SIMT)
#include "kernels/simt/cuda_types.cuh"
#else
#include <cuda_runtime_api.h>
#endif

namespace rw::cuda {
namespace {

[[noreturn]] void raise(cudaError_t code, const std::string& what, const char* file, int line) {
  const std::string text = what + " at " + file + ":" + std::to_string(line) + ": " + cudaGetErrorName(code) + ": " +
                           cudaGetErrorString(code);
  cudaGetLastError();  // what was told is not told again
  if (code == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(text);
  throw CudaError(text);
}

}  // namespace

void check(int code, const char* call, const char* file, int line) {
  if (code != cudaSuccess) raise(static_cast<cudaError_t>(code), call, file, line);
}

void check_launch(const char* kernel, const char* file, int line) {
  if (const cudaError_t code = cudaPeekAtLastError(); code != cudaSuccess)
    raise(code, std::string("kernel ") + kernel, file, line);
}

}  // namespace rw::cuda
