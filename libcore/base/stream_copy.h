// A large copy whose result is not read soon.
#pragma once
#include <cstdint>

namespace rw {

// memcpy with stores that go past the caches. The C library does so only for copies of hundreds of megabytes; in parts
// of a megabyte, as threads share a copy, it took up to twice the time.
void stream_copy(char* dst, const char* src, int64_t bytes);

}  // namespace rw
