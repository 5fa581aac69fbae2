// What the numbers of a tensor look like, read in parts.
#pragma once
#include <cstdint>
#include <functional>

#include "libcore/tensor/source.h"

namespace rw {

// min, max, mean and std (of the population) are over the finite elements, in f64; 0 when there are none.
struct TensorStats {
  int64_t n = 0;  // elements
  int64_t n_nan = 0, n_inf = 0, n_zero = 0;
  double min = 0, max = 0, mean = 0, std = 0;
  int64_t n_finite() const { return n - n_nan - n_inf; }
};

// `progress` (may be null) is told bytes read since the last call. Memory: a few MiB.
TensorStats tensor_stats(const TensorSource& source, const TensorInfo& tensor,
                         const std::function<void(int64_t bytes)>& progress);

}  // namespace rw
