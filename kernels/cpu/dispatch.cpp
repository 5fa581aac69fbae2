#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/memory.h"
#include "kernels/cpu/quant_layout.h"
#include "kernels/cpu/sample_scan.h"
#include "kernels/cpu/variant.h"
#include "kernels/ops.h"

namespace rw {
namespace {

// clang-format off
#define RW_TABLE(set)                                         \
  Ops {                                                       \
    .name = "cpu/" #set,                                      \
    .gemm = cpu_##set::gemm,                                  \
    .gemm_pack = cpu_##set::gemm_pack,                        \
    .gemm_workspace = cpu_##set::gemm_workspace,              \
    .packed_bytes = cpu_##set::packed_bytes,                  \
    .quant_pack = cpu_##set::quant_pack,                      \
    .quant_unpack = cpu_##set::quant_unpack,                  \
    .quant_gemm = cpu_##set::quant_gemm,                      \
    .quant_packed_bytes = quant_packed_bytes,                 \
    .quant_gemm_workspace = cpu_##set::quant_gemm_workspace,  \
    .bias_bwd = cpu_##set::bias_bwd,                          \
    .norm_fwd = cpu_##set::norm_fwd,                          \
    .norm_bwd = cpu_##set::norm_bwd,                          \
    .rope = cpu_##set::rope,                                  \
    .attention_fwd = cpu_##set::attention_fwd,                \
    .attention_bwd = cpu_##set::attention_bwd,                \
    .attention_workspace = cpu_##set::attention_workspace,    \
    .kv_write = cpu_##set::kv_write,                          \
    .paged_attention = cpu_##set::paged_attention,            \
    .paged_attention_workspace = cpu_##set::paged_attention_workspace, \
    .gelu_fwd = cpu_##set::gelu_fwd,                          \
    .gelu_bwd = cpu_##set::gelu_bwd,                          \
    .swiglu_fwd = cpu_##set::swiglu_fwd,                      \
    .swiglu_bwd = cpu_##set::swiglu_bwd,                      \
    .embedding_fwd = cpu_##set::embedding_fwd,                \
    .embedding_bwd = cpu_##set::embedding_bwd,                \
    .cross_entropy_part = cpu_##set::cross_entropy_part,      \
    .cross_entropy_finish = cpu_##set::cross_entropy_finish,  \
    .sample_scan = cpu_sample_scan,                           \
    .adamw = cpu_##set::adamw,                                \
    .sum_squares = cpu_##set::sum_squares,                    \
    .cast = cpu_##set::cast,                                  \
    .add = cpu_##set::add,                                    \
    .scale = cpu_##set::scale,                                \
    .zero = cpu_zero,                                         \
    .read = cpu_read,                                         \
    .upload = cpu_upload,                                     \
  }
// clang-format on

// In the order of Isa.
constexpr Ops kTables[] = {RW_TABLE(scalar), RW_TABLE(avx2), RW_TABLE(avx512), RW_TABLE(avx512_bf16)};

[[noreturn]] void refuse(const char* isa) {
  std::string have;
  for (Isa i : kIsas) {
    if (isa_supported(i)) have += std::string(have.empty() ? "" : ", ") + isa_name(i);
  }
  throw std::invalid_argument("instruction set '" + std::string(isa) + "' (RANKWRIGHT_ISA): this CPU runs " + have);
}

}  // namespace

const Ops& cpu_ops(const char* isa) {
  if (!isa) isa = std::getenv("RANKWRIGHT_ISA");
  if (!isa || !*isa) return kTables[static_cast<int>(best_isa())];
  for (Isa i : kIsas) {
    if (std::string(isa) == isa_name(i) && isa_supported(i)) return kTables[static_cast<int>(i)];
  }
  refuse(isa);
}

}  // namespace rw
