// Register-only loops that run an instruction set at its full rate; one file each, because each needs its own flags.
// The accumulators start unequal (equal ones are merged into one chain by the compiler) and there are few enough of
// them to stay in registers (a spilled accumulator measures the store port).
#pragma once
#include <cstdint>

namespace rw {

struct PeakLoop {
  const char* instruction;
  double flops_per_iteration;
  void (*run)(int64_t iterations, float* sink);  // adds something to *sink, so that nothing is removed
};

// A multiply-add chain per accumulator. All x86-64; the others need what their name says.
extern const PeakLoop peak_scalar_fma, peak_avx2_fma, peak_avx512_fma;
extern const PeakLoop peak_avx512_bf16_dot;  // vdpbf16ps
extern const PeakLoop peak_amx_bf16_dot;     // tdpbf16ps; call amx_ready() first

}  // namespace rw
