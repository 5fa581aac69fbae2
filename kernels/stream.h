// Where a kernel call runs. On the CPU a stream is the calling thread's OpenMP team of `threads` threads; a call
// returns when its work is done. The meta and the checking tables write to the stream's log.
#pragma once
#include <cstdint>

namespace rw {

struct OpLog;  // op_log.h

struct Stream {
  int threads = 1;
  OpLog* log = nullptr;
};

}  // namespace rw
