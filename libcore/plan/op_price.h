// Seconds of ops on a device type: roofline with the shape's efficiency. A matrix product runs at the peak's achievable
// fraction, less what its tiles leave idle (tile and wave quantisation over the compute units) and what a short k
// costs; what is bound by memory runs at the achievable bandwidth; every op takes a launch.
#pragma once
#include "kernels/dtype.h"
#include "kernels/op_log.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

double peak_flops(const DeviceType& device, DType t);  // Error{usage} when the type cannot do it
// Share of gemm_fraction * peak that a product of this shape reaches, in (0, 1].
double gemm_shape_efficiency(const DeviceType& device, int64_t m, int64_t n, int64_t k);
double op_seconds(const OpCall& call, const DeviceType& device, DType t);

}  // namespace rw
