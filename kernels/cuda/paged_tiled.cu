#include "kernels/cuda/paged_mma.cuh"

namespace rw::cuda {

void paged_tiled_rows(const PagedWork& a, DType kv_t, Stream s) {
  with_mma_rows<Rows::tiled>(a, kv_t, [&]<class Engine>(Engine*) { launch_tiled<Engine>(a, s); });
}

}  // namespace rw::cuda
