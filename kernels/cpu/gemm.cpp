#include "kernels/cpu/gemm.h"

#include "kernels/cpu/gemm_amx.h"
#include "kernels/cpu/variant.h"
#include "kernels/gemm_parts.h"
#include "libcore/base/check.h"

namespace rw {

#define RW_DECLARE_PANEL_KERNELS(isa)                                                \
  namespace isa {                                                                    \
  extern const PanelKernel vector_f32_kernel, vector_bf16_kernel, vector_f16_kernel; \
  }
RW_DECLARE_PANEL_KERNELS(cpu_scalar)
RW_DECLARE_PANEL_KERNELS(cpu_avx2)
RW_DECLARE_PANEL_KERNELS(cpu_avx512)
RW_DECLARE_PANEL_KERNELS(cpu_avx512_bf16)
namespace cpu_avx512_bf16 {
extern const PanelKernel dot_bf16_kernel;
}

namespace {

const PanelKernel& of_type(DType t, const PanelKernel& f32, const PanelKernel& bf16, const PanelKernel& f16) {
  CHECK(t == DType::f32 || t == DType::bf16 || t == DType::f16, "gemm: t is %s, not f32, bf16 or f16", dtype_name(t));
  return t == DType::f32 ? f32 : t == DType::bf16 ? bf16 : f16;
}

}  // namespace

const PanelKernel& gemm_kernel(Isa isa, DType t, Bf16Unit unit) {
#define RW_OF_TYPE(set, bf16_kernel) of_type(t, cpu_##set::vector_f32_kernel, bf16_kernel, cpu_##set::vector_f16_kernel)
  switch (isa) {
    case Isa::scalar: return RW_OF_TYPE(scalar, cpu_scalar::vector_bf16_kernel);
    case Isa::avx2: return RW_OF_TYPE(avx2, cpu_avx2::vector_bf16_kernel);
    case Isa::avx512: return RW_OF_TYPE(avx512, cpu_avx512::vector_bf16_kernel);
    case Isa::avx512_bf16: break;
  }
  const bool tiles = unit == Bf16Unit::best && amx_ready();
  return RW_OF_TYPE(avx512_bf16, tiles ? amx_bf16_kernel : cpu_avx512_bf16::dot_bf16_kernel);
#undef RW_OF_TYPE
}

#define RW_DEFINE_GEMM(set)                                                                                        \
  namespace cpu_##set {                                                                                            \
    void gemm(const Gemm& g, Stream s) {                                                                           \
      in_parts(                                                                                                    \
          g, [s](const Gemm& product) { panels_gemm(gemm_kernel(Isa::set, product.t), product, s); },              \
          [s](const GeluFwd& a) { gelu_fwd(a, s); }, [s](const GeluBwd& a) { gelu_bwd(a, s); });                   \
    }                                                                                                              \
    void gemm_pack(const GemmPack& g, Stream s) { panels_pack(gemm_kernel(Isa::set, g.t), g, s); }                 \
    int64_t gemm_workspace(const Gemm& g, Stream s) { return panels_workspace(gemm_kernel(Isa::set, g.t), g, s); } \
    int64_t packed_bytes(const GemmPack& g, Stream) { return panels_packed_bytes(gemm_kernel(Isa::set, g.t), g); } \
  }
RW_DEFINE_GEMM(scalar)
RW_DEFINE_GEMM(avx2)
RW_DEFINE_GEMM(avx512)
RW_DEFINE_GEMM(avx512_bf16)

}  // namespace rw
