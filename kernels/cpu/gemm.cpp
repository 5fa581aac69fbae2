#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_amx.h"

namespace rw {

#define RW_DECLARE_PANEL_KERNELS(isa)                             \
  namespace isa {                                                 \
  extern const PanelKernel vector_f32_kernel, vector_bf16_kernel; \
  }
RW_DECLARE_PANEL_KERNELS(cpu_scalar)
RW_DECLARE_PANEL_KERNELS(cpu_avx2)
RW_DECLARE_PANEL_KERNELS(cpu_avx512)
RW_DECLARE_PANEL_KERNELS(cpu_avx512_bf16)
namespace cpu_avx512_bf16 {
extern const PanelKernel dot_bf16_kernel;
}

const PanelKernel& gemm_kernel(Isa isa, DType t, Bf16Unit unit) {
  const bool f32 = t == DType::f32;
  switch (isa) {
    case Isa::scalar: return f32 ? cpu_scalar::vector_f32_kernel : cpu_scalar::vector_bf16_kernel;
    case Isa::avx2: return f32 ? cpu_avx2::vector_f32_kernel : cpu_avx2::vector_bf16_kernel;
    case Isa::avx512: return f32 ? cpu_avx512::vector_f32_kernel : cpu_avx512::vector_bf16_kernel;
    case Isa::avx512_bf16: break;
  }
  if (f32) return cpu_avx512_bf16::vector_f32_kernel;
  return unit == Bf16Unit::best && amx_ready() ? amx_bf16_kernel : cpu_avx512_bf16::dot_bf16_kernel;
}

#define RW_DEFINE_GEMM(set)                                                                                        \
  namespace cpu_##set {                                                                                            \
    void gemm(const Gemm& g, Stream s) { panels_gemm(gemm_kernel(Isa::set, g.t), g, s); }                          \
    void gemm_pack(const GemmPack& g, Stream s) { panels_pack(gemm_kernel(Isa::set, g.t), g, s); }                 \
    int64_t gemm_workspace(const Gemm& g, Stream s) { return panels_workspace(gemm_kernel(Isa::set, g.t), g, s); } \
    int64_t packed_bytes(const GemmPack& g, Stream) { return panels_packed_bytes(gemm_kernel(Isa::set, g.t), g); } \
  }
RW_DEFINE_GEMM(scalar)
RW_DEFINE_GEMM(avx2)
RW_DEFINE_GEMM(avx512)
RW_DEFINE_GEMM(avx512_bf16)

}  // namespace rw
