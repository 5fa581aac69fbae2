// From an op's arguments to a launch: types, streams, grids.
#pragma once
#include <cstdint>

#include "kernels/cuda/shared_limits.h"
#include "kernels/dtype.h"
#include "kernels/stream.h"
#include "libcore/base/check.h"

// The last: it makes macros of the thread indices.
#include "kernels/cuda/vectors.cuh"

namespace rw::cuda {

inline cudaStream_t native(Stream s) { return static_cast<cudaStream_t>(s.native); }

// f(T{}) with the activations' type.
template <class F>
void with_type(DType t, F&& f) {
  switch (t) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    default: CHECK(false, "cuda ops: type %s: expected f32, bf16 or f16", dtype_name(t));
  }
}

// Blocks of a one-dimensional grid in which each covers `per_block` of n > 0 things.
inline dim3 blocks_for(int64_t n, int64_t per_block) {
  const int64_t blocks = (n + per_block - 1) / per_block;
  CHECK(blocks >= 1 && blocks <= 0x7fffffff, "cuda ops: %lld blocks of %lld", static_cast<long long>(blocks),
        static_cast<long long>(per_block));
  return dim3(static_cast<unsigned>(blocks));
}

// A kernel's shared memory of a declared size, at most, where it has dynamic memory too.
constexpr size_t kMostStaticBytes = 16 << 10;
// Lets a kernel have so much dynamic shared memory: what exceeds 48 KiB together with the declared must be asked for.
template <class Kernel>
void allow_shared(Kernel* kernel, size_t bytes, size_t most = kMostSharedBytes) {
  CHECK(bytes <= most, "cuda ops: %zu bytes of shared memory, at most %zu", bytes, most);
  if (bytes + kMostStaticBytes > (size_t{48} << 10))
    RW_CUDA(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(bytes)));
}

// Of this thread in a one-dimensional grid.
__device__ __forceinline__ int64_t global_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class T>
const T* as(const void* p) {
  return static_cast<const T*>(p);
}
template <class T>
T* as(void* p) {
  return static_cast<T*>(p);
}

}  // namespace rw::cuda
