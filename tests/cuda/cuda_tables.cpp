#include "tests/cuda/cuda_tables.h"

#include "kernels/cuda/table.h"
#include "kernels/simt/runtime.cuh"

// After the above: the toolkit's names.
#include "kernels/cuda/error.h"

namespace rw::test {
namespace {

template <class Args, void (*op)(const Args&, Stream)>
void waited(const Args& a, Stream s) {
  op(a, s);
  RW_CUDA(cudaStreamSynchronize(static_cast<cudaStream_t>(s.native)));
}

}  // namespace

const Ops& waited_cuda_ops() {
  static constexpr Ops table{
      .name = "cuda",
      .gemm = waited<Gemm, cuda::gemm>,
      .gemm_pack = waited<GemmPack, cuda::gemm_pack>,
      .gemm_workspace = cuda::gemm_workspace,
      .packed_bytes = cuda::packed_bytes,
      .quant_pack = waited<QuantPack, cuda::quant_pack>,
      .quant_unpack = waited<QuantUnpack, cuda::quant_unpack>,
      .quant_gemm = waited<QuantGemm, cuda::quant_gemm>,
      .quant_packed_bytes = cuda::quant_packed_bytes,
      .quant_gemm_workspace = cuda::quant_gemm_workspace,
      .bias_bwd = waited<BiasBwd, cuda::bias_bwd>,
      .norm_fwd = waited<NormFwd, cuda::norm_fwd>,
      .norm_bwd = waited<NormBwd, cuda::norm_bwd>,
      .rope = waited<Rope, cuda::rope>,
      .attention_fwd = waited<AttentionFwd, cuda::attention_fwd>,
      .attention_bwd = waited<AttentionBwd, cuda::attention_bwd>,
      .attention_workspace = cuda::attention_workspace,
      .kv_write = waited<KvWrite, cuda::kv_write>,
      .paged_attention = waited<PagedAttention, cuda::paged_attention>,
      .paged_attention_workspace = cuda::paged_attention_workspace,
      .gelu_fwd = waited<GeluFwd, cuda::gelu_fwd>,
      .gelu_bwd = waited<GeluBwd, cuda::gelu_bwd>,
      .swiglu_fwd = waited<SwigluFwd, cuda::swiglu_fwd>,
      .swiglu_bwd = waited<SwigluBwd, cuda::swiglu_bwd>,
      .embedding_fwd = waited<EmbeddingFwd, cuda::embedding_fwd>,
      .embedding_bwd = waited<EmbeddingBwd, cuda::embedding_bwd>,
      .cross_entropy_part = waited<CrossEntropyPart, cuda::cross_entropy_part>,
      .cross_entropy_finish = waited<CrossEntropyFinish, cuda::cross_entropy_finish>,
      .adamw = waited<AdamW, cuda::adamw>,
      .sum_squares = waited<SumSquares, cuda::sum_squares>,
      .cast = waited<Cast, cuda::cast>,
      .add = waited<Add, cuda::add>,
      .scale = waited<Scale, cuda::scale>,
      .zero = waited<Zero, cuda::zero>,
      .read = waited<Read, cuda::read>,
  };
  return table;
}

void each_order(void (*f)(const void*), const void* argument) {
  for (const simt::Order order : simt::kOrders) {
    simt::set_order(order);
    f(argument);
  }
  simt::set_order(simt::Order::forward);
}

}  // namespace rw::test
