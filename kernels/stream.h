// Where a kernel call runs. On the CPU a stream is the calling thread's OpenMP team of `threads` threads, shared by our
// kernels and the DNN library; a call returns when its work is done.
#pragma once
#include <cstdint>

namespace rw {

struct Stream {
  int threads = 1;
};

}  // namespace rw
