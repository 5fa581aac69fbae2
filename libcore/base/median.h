#pragma once
#include <vector>

namespace rw {

// The middle value, of an even number the mean of the two in the middle. At least one value.
double median(std::vector<double> values);

}  // namespace rw
