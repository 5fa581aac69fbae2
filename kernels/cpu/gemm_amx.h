// Matrix products on the tile unit (Intel AMX).
#pragma once
#include "kernels/cpu/gemm_panels.h"

namespace rw {

// Whether CPU and kernel let this process use the bf16 tiles; asks the kernel for the permission once.
bool amx_ready();
// The same for those of 8-bit whole numbers.
bool amx_int8_ready();

// bf16 times bf16 on tiles: panels of 32 rows and 32 columns. Subnormal numbers count as zero, as the instruction does.
extern const PanelKernel amx_bf16_kernel;

}  // namespace rw
