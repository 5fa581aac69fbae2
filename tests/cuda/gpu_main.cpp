// The kernel tests on a GPU. Without one: says so, and ends with 77, which Meson counts as skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstdio>

#include "tests/cuda/pinned_memory.h"

int main(int argc, char** argv) {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  if (code != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device: cudaGetDeviceCount says %s\n",
                code == cudaSuccess ? "there are none" : cudaGetErrorString(code));
    return 77;
  }
  cudaDeviceProp device{};
  if (cudaGetDeviceProperties(&device, 0) == cudaSuccess)
    std::printf("%s, compute capability %d.%d\n", device.name, device.major, device.minor);
  rw::test::open_pinned_memory();
  return doctest::Context(argc, argv).run();
}
