// The cuda table as the device gives it out.
#pragma once
#include "kernels/ops.h"

namespace rw {

// Its ops throw Error{runtime} for what the device refuses.
const Ops& cuda_device_ops();
int64_t cuda_most_head_size();
// Tries what is tried once a device, before the first op; by the host thread that has chosen it.
void try_cuda_device();

}  // namespace rw
