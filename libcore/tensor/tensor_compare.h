// Two tensors of one shape, element by element, read in parts.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "libcore/tensor/source.h"

namespace rw {

struct TensorComparison {
  int64_t n = 0;            // elements
  int64_t n_different = 0;  // as numbers: -0 equals 0, and a NaN equals a NaN
  int64_t n_unlike = 0;     // of these, where one side is NaN or infinite and the other is not the same
  double max_abs = 0;       // largest |a - b| of the others, in f64
  double largest = 0;       // largest finite |a| or |b| of the whole tensor
  Shape at;                 // where max_abs is; empty when nothing differs, and for a scalar
  double relative() const { return max_abs == 0 ? 0 : max_abs / largest; }
};

// The tensor has the same shape in both; dtypes may differ. `progress` (may be null) is told bytes read of both since
// the last call. Memory: a few MiB.
TensorComparison compare_tensor(const TensorSource& a, const TensorSource& b, const std::string& name,
                                const std::function<void(int64_t bytes)>& progress);

}  // namespace rw
