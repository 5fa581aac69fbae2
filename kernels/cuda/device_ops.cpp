// Without the simulator a misplaced operand is the device's to tell.
#include "kernels/cuda/table.h"

namespace rw::cuda {

const Ops& device_ops() { return cuda_ops(); }

}  // namespace rw::cuda
