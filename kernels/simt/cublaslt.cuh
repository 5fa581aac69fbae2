// cuBLASLt on the host, as far as gemm.cpp calls it: the library's declarations under the host compiler. Its functions
// are defined in cublaslt.cpp: a product is made naively, with sums in double, when its stream gets to it.
#pragma once
#include "kernels/simt/cuda_types.cuh"
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <cublasLt.h>
#pragma GCC diagnostic pop

namespace rw::simt {

// What the program's calls were, for tests of which way a product goes.
struct CublasLtCounts {
  int64_t asked_algorithms = 0, fused_gelu = 0;
};
CublasLtCounts cublaslt_counts();

// What the library may do and the program must not be surprised by; all off at the start.
struct CublasLtWays {
  bool adds_by_shape = false;  // algorithms that are chosen by the shape add in other orders, in f32
  bool promises_gelu = false;  // GELU is in its list of algorithms where its call has none
};
void set_cublaslt_ways(const CublasLtWays& ways);

}  // namespace rw::simt
