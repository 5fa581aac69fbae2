#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/table.h"

namespace rw::cuda {

void bias_bwd(const BiasBwd& a, Stream s) {
  with_type(a.t, [&](auto element) {
    using T = decltype(element);
    column_sums(MatrixColumn<T>{as<T>(a.d_y), a.ld != 0 ? a.ld : a.n}, {a.d_bias, a.rows, a.n, a.write}, s);
  });
}

}  // namespace rw::cuda
