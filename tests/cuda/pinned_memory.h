// Memory of this program that a GPU reaches as well.
#pragma once

namespace rw::test {

// From now on every operator new gives memory that kernels may read and write. cuda::CudaError where there is no
// device.
void open_pinned_memory();

}  // namespace rw::test
