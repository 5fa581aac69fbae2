// Shared memory that our kernels ask for.
#pragma once
#include <cstddef>

namespace rw::cuda {

// A block's: what a device must have (as those of compute capability 8.0 do), and what kernels of 9.0 alone may ask
// for.
constexpr size_t kMostSharedBytes = 163 << 10, kMostSharedBytes90 = 227 << 10;

}  // namespace rw::cuda
