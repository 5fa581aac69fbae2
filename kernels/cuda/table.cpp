#include "kernels/cuda/table.h"

namespace rw {

const Ops& cuda_ops() {
  static constexpr Ops table{
      .name = "cuda",
      .gemm = cuda::gemm,
      .gemm_pack = cuda::gemm_pack,
      .gemm_workspace = cuda::gemm_workspace,
      .packed_bytes = cuda::packed_bytes,
      .quant_pack = cuda::quant_pack,
      .quant_unpack = cuda::quant_unpack,
      .quant_gemm = cuda::quant_gemm,
      .quant_packed_bytes = cuda::quant_packed_bytes,
      .quant_gemm_workspace = cuda::quant_gemm_workspace,
      .bias_bwd = cuda::bias_bwd,
      .norm_fwd = cuda::norm_fwd,
      .norm_bwd = cuda::norm_bwd,
      .rope = cuda::rope,
      .attention_fwd = cuda::attention_fwd,
      .attention_bwd = cuda::attention_bwd,
      .attention_workspace = cuda::attention_workspace,
      .kv_write = cuda::kv_write,
      .paged_attention = cuda::paged_attention,
      .paged_attention_workspace = cuda::paged_attention_workspace,
      .gelu_fwd = cuda::gelu_fwd,
      .gelu_bwd = cuda::gelu_bwd,
      .swiglu_fwd = cuda::swiglu_fwd,
      .swiglu_bwd = cuda::swiglu_bwd,
      .embedding_fwd = cuda::embedding_fwd,
      .embedding_bwd = cuda::embedding_bwd,
      .cross_entropy_part = cuda::cross_entropy_part,
      .cross_entropy_finish = cuda::cross_entropy_finish,
      .sample_scan = cuda::sample_scan,
      .adamw = cuda::adamw,
      .sum_squares = cuda::sum_squares,
      .cast = cuda::cast,
      .add = cuda::add,
      .scale = cuda::scale,
      .zero = cuda::zero,
      .read = cuda::read,
      .upload = cuda::upload,
  };
  return table;
}

}  // namespace rw
