// The matrix products of the CPU tables (gemm_panels.h), chosen by instruction set and type:
//
//   f32    vector registers of the set
//   f16    the same, on operands widened to f32: a storage type
//   bf16   tile unit (AMX) or vdpbf16ps for the set avx512_bf16, by what the CPU has; below it widened to f32, exactly
#pragma once
#include "kernels/cpu/gemm_panels.h"
#include "kernels/cpu/isa.h"
#include "kernels/ops.h"

namespace rw {

// A packed matrix belongs to the set, the type and the machine that packed it.
#define RW_DECLARE_GEMM(isa)                     \
  namespace isa {                                \
  void gemm(const Gemm&, Stream);                \
  void gemm_pack(const GemmPack&, Stream);       \
  int64_t gemm_workspace(const Gemm&, Stream);   \
  int64_t packed_bytes(const GemmPack&, Stream); \
  }
RW_DECLARE_GEMM(cpu_scalar)
RW_DECLARE_GEMM(cpu_avx2)
RW_DECLARE_GEMM(cpu_avx512)
RW_DECLARE_GEMM(cpu_avx512_bf16)
#undef RW_DECLARE_GEMM

// The kernel behind them; `Bf16Unit` picks one of the two of avx512_bf16, for tests and benchmarks.
enum class Bf16Unit : uint8_t { best, vector };
const PanelKernel& gemm_kernel(Isa isa, DType t, Bf16Unit unit = Bf16Unit::best);

}  // namespace rw
