#pragma once
#include <functional>

namespace rw {

// Seconds of a call: the median over at least five calls and `seconds`, after one that does not count.
double median_seconds(const std::function<void()>& call, double seconds);

}  // namespace rw
