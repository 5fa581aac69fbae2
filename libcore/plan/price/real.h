// A count as a factor of seconds and bytes.
#pragma once
#include <cstdint>

namespace rw {

inline double real(int64_t n) { return static_cast<double>(n); }

}  // namespace rw
