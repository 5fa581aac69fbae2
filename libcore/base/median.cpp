#include "libcore/base/median.h"

#include <algorithm>
#include <cstddef>

#include "libcore/base/check.h"

namespace rw {

double median(std::vector<double> values) {
  CHECK(!values.empty(), "median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace rw
