// The language of our kernels: CUDA C++ under nvcc, the same sources run by fibers on the host under any other compiler
// (kernels/simt). Included last: thread indices are macros on the host.
//
// What kernels hold to, so that both are the same program:
//   SHARED(T, name, n) and DYN_SHARED(T, name) (DYN_SHARED_1024: at 1024 bytes) declare shared memory; LAUNCH starts a
//   kernel; nothing else does. No return before a barrier, no barrier or warp operation in divergent code; whoever
//   reuses shared scratch ends with a barrier. Full masks; a warp has 32 lanes. Blocks are independent; no globals,
//   textures, __constant__. PTX only in arch.cuh and warpgroup.cuh, beside its meaning in C++. Operators on bf16 and
//   f16 only through float.
#pragma once
#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda/error.h"

#define SHARED(T, name, n) __shared__ __align__(16) T name[n]
#define DYN_SHARED(T, name)                                   \
  extern __shared__ __align__(128) unsigned char rw_shared[]; \
  T* const name = reinterpret_cast<T*>(rw_shared)
#define DYN_SHARED_1024(T, name)                                    \
  extern __shared__ __align__(1024) unsigned char rw_shared_1024[]; \
  T* const name = reinterpret_cast<T*>(rw_shared_1024)
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)          \
  do {                                                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__); \
    ::rw::cuda::check_launch(#kernel, __FILE__, __LINE__);              \
  } while (false)
#else
#include "kernels/cuda/error.h"
#include "kernels/simt/kernel_language.cuh"

#define SHARED(T, name, n)                                   \
  T* const name = static_cast<T*>(::rw::simt::shared_memory( \
      [] {                                                   \
        static char tag;                                     \
        return &tag;                                         \
      }(),                                                   \
      sizeof(T) * (n)))
#define DYN_SHARED(T, name) T* const name = static_cast<T*>(::rw::simt::dynamic_shared_memory())
#define DYN_SHARED_1024(T, name) DYN_SHARED(T, name)
#define LAUNCH(function, grid_shape, block_shape, dynamic_bytes, stream, ...)                              \
  do {                                                                                                     \
    ::rw::simt::launch({.grid = (grid_shape),                                                              \
                        .block = (block_shape),                                                            \
                        .shared_bytes = static_cast<size_t>(dynamic_bytes),                                \
                        .kernel = #function,                                                               \
                        .address = ::rw::simt::address_of(function)},                                      \
                       (stream), ::rw::simt::bind_kernel([](auto... a) { function(a...); }, __VA_ARGS__)); \
    ::rw::cuda::check_launch(#function, __FILE__, __LINE__);                                               \
  } while (false)
#endif
