// The kernels around the library's products.
#pragma once
#include "kernels/ops.h"

namespace rw::cuda {

// c = round(sums(m,n) + bias); ldc in elements.
void add_bias_and_round(const Gemm& g, const float* sums, int64_t ldc, Stream s);
// A product over k = 0: c = [c +] [bias], zeros without.
void gemm_of_nothing(const Gemm& g, int64_t ldc, Stream s);

}  // namespace rw::cuda
