// Where a kernel call runs. On the CPU a stream is the calling thread's OpenMP team of `threads` threads; a call
// returns when its work is done. The cuda table puts its work on the native stream and returns. The meta and the
// checking tables write to the stream's log.
#pragma once
#include <cstdint>

namespace rw {

struct OpLog;  // op_log.h

struct Stream {
  int threads = 1;
  OpLog* log = nullptr;
  void* native = nullptr;  // a cudaStream_t
};

}  // namespace rw
