// Sizes that are whole multiples of a unit.
#pragma once
#include <cstdint>

namespace rw {

constexpr int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace rw
