#include "kernels/cuda/error.h"

#if defined(RW_SIMT)
#include "kernels/simt/cuda_types.cuh"
#else
#include <cuda_runtime_api.h>
#endif

namespace rw::cuda {
namespace {

struct Launch {
  const char *kernel = nullptr, *file = nullptr;
  int line = 0;
};
thread_local constinit Launch last_launch;

// What a kernel did while it ran is told by a later call, which does not know whose it was: the nearest that can be
// said. The simulator's own text names the kernel.
std::string suspect(cudaError_t code) {
  switch (code) {
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalAddress:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorMisalignedAddress: break;
    default: return "";
  }
#if defined(RW_SIMT)
  return "";
#else
  if (last_launch.kernel == nullptr) return "";
  return std::string(" (a kernel failed while it ran; the last one started was ") + last_launch.kernel + " at " +
         last_launch.file + ":" + std::to_string(last_launch.line) +
         "; with CUDA_LAUNCH_BLOCKING=1 in the environment the error names the one that failed)";
#endif
}

[[noreturn]] void raise(cudaError_t code, const std::string& what, const char* file, int line) {
  const std::string text = what + " at " + file + ":" + std::to_string(line) + ": " + cudaGetErrorName(code) + ": " +
                           cudaGetErrorString(code) + suspect(code);
  cudaGetLastError();  // what was told is not told again
  if (code == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(text);
  throw CudaError(text);
}

}  // namespace

void check(int code, const char* call, const char* file, int line) {
  if (code == cudaSuccess) return;
  const std::string text = call;
  raise(static_cast<cudaError_t>(code), text.substr(0, text.find('(')), file, line);  // without its arguments
}

void check_launch(const char* kernel, const char* file, int line) {
  if (const cudaError_t code = cudaPeekAtLastError(); code != cudaSuccess)
    raise(code, std::string("kernel ") + kernel, file, line);
  last_launch = {kernel, file, line};
}

}  // namespace rw::cuda
