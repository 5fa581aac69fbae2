// What the library's products leave out. (The kernels that pack their operands are in gemm_finish.cu too.)
#pragma once
#include "kernels/ops.h"

namespace rw::cuda {

// A product over k = 0: c = [c +] [bias], zeros without.
void gemm_of_nothing(const Gemm& g, int64_t ldc, Stream s);

}  // namespace rw::cuda
