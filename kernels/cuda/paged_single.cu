#include "kernels/cuda/paged_mma.cuh"

namespace rw::cuda {

void paged_single_rows(const PagedWork& a, DType kv_t, Stream s) {
  with_mma_rows<Rows::single>(a, kv_t, [&]<class Engine>(Engine*) { launch_single<Engine>(a, s); });
}

}  // namespace rw::cuda
