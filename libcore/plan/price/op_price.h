// Seconds of ops on a device type: roofline with the shape's efficiency. What is bound by memory runs at the achievable
// bandwidth, every op takes a launch, and:
//
//   products    at the achievable fraction of the peak, less what tiles leave idle: the last wave of tiles over the
//               compute units, and tiles that hang over the edge (tile and wave quantisation)
//   attention   a fused kernel at attention_fraction of the peak for heads of 96 elements or so and long sequences;
//               short of that, smaller heads and shorter sequences reach less of it. Or two batched products with the
//               scores written to memory between them, as trainers did before fused kernels
#pragma once
#include "kernels/dtype.h"
#include "kernels/op_log.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// How attention is computed.
struct AttentionKernel {
  bool fused = true;
  double rate = 1;  // of a fused kernel, against attention_fraction
};

double peak_flops(const DeviceType& device, DType t);  // Error{usage} when the type cannot do it
// Share of gemm_fraction * peak that `batch` products (m, n) reach, whatever their inner size, in (0, 1]. The better of
// three tiles, as libraries choose: the device's, and a half and a quarter of it in rows, which feed the units less
// well.
double tile_efficiency(const DeviceType& device, int64_t m, int64_t n, int64_t batch = 1);
double op_seconds(const OpCall& call, const DeviceType& device, DType t, const AttentionKernel& attention = {});

}  // namespace rw
