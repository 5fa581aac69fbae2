// The cuda table as nvcc built it: all of it links, and a machine without a GPU is told so in words; with one, two
// vectors are added.
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cuda/error.h"
#include "kernels/cuda/table.h"

// After the above: the toolkit's names.
#include <cuda_runtime_api.h>

namespace {

using namespace rw;

std::string missing_device(cudaError_t code) {
  return std::string("no CUDA device: cudaGetDeviceCount says ") + cudaGetErrorName(code) + ": " +
         cudaGetErrorString(code) +
         ". Look whether nvidia-smi lists a GPU and whether its driver is of this toolkit's version. Everything runs "
         "on "
         "the CPU as well: that is the default, no option is needed.";
}

// Whether the sums are right.
bool adds_vectors() {
  const int64_t n = 1009;
  const auto bytes = static_cast<size_t>(n) * sizeof(float);
  std::vector<float> a, b, sum(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    a.push_back(static_cast<float>(i));
    b.push_back(static_cast<float>(2 * i + 1));
  }
  void *x = nullptr, *y = nullptr;
  RW_CUDA(cudaMalloc(&x, bytes));
  RW_CUDA(cudaMalloc(&y, bytes));
  RW_CUDA(cudaMemcpy(x, a.data(), bytes, cudaMemcpyHostToDevice));
  RW_CUDA(cudaMemcpy(y, b.data(), bytes, cudaMemcpyHostToDevice));
  cuda_ops().add({.y = y, .a = x, .b = y, .n = n, .t = DType::f32}, {});
  cuda_ops().read({.host = sum.data(), .device = y, .n = n, .t = DType::f32}, {});
  RW_CUDA(cudaFree(x));
  RW_CUDA(cudaFree(y));
  for (size_t i = 0; i < sum.size(); ++i)
    if (sum[i] != a[i] + b[i]) return false;
  return true;
}

}  // namespace

int main() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  std::printf("table %s\n", cuda_ops().name);
  if (code == cudaSuccess && devices > 0) {
    const bool right = adds_vectors();
    std::printf("%d devices; sums of two vectors: %s\n", devices, right ? "right" : "wrong");
    return right ? 0 : 1;
  }
  const std::string text = missing_device(code == cudaSuccess ? cudaErrorNoDevice : code);
  std::printf("%s\n", text.c_str());
  // A call that needs the device names itself and the same cause.
  std::string said;
  try {
    void* block = nullptr;
    RW_CUDA(cudaMalloc(&block, 1));
  } catch (const cuda::CudaError& e) {
    said = e.what();
  }
  std::printf("%s\n", said.c_str());
  const bool names = text.find("no CUDA device") == 0 && text.find("CPU") != std::string::npos;
  return names && said.find("cudaMalloc") == 0 && said.find("cudaError") != std::string::npos ? 0 : 1;
}
