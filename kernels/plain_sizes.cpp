#include "kernels/plain_sizes.h"

#include "kernels/device_sizes.h"

namespace rw {
namespace {

constexpr Ops kPlainSizes{
    .name = "accelerator",
    .gemm = nullptr,
    .gemm_pack = nullptr,
    .gemm_workspace = [](const Gemm& g, Stream) { return device_gemm_workspace(g); },
    .packed_bytes = [](const GemmPack& p, Stream) { return device_packed_bytes(p); },
    .quant_pack = nullptr,
    .quant_unpack = nullptr,
    .quant_gemm = nullptr,
    .quant_packed_bytes = [](const QuantPack& p, Stream) { return device_quant_packed_bytes(p); },
    .quant_gemm_workspace = [](const QuantGemm& g, Stream) { return device_quant_workspace(g); },
    .bias_bwd = nullptr,
    .norm_fwd = nullptr,
    .norm_bwd = nullptr,
    .rope = nullptr,
    .attention_fwd = nullptr,
    .attention_bwd = nullptr,
    .attention_workspace = [](const AttentionBwd& a, Stream) { return device_attention_workspace(a); },
    .kv_write = nullptr,
    .paged_attention = nullptr,
    .paged_attention_workspace = [](const PagedAttention& a, Stream) { return device_paged_workspace(a); },
    .gelu_fwd = nullptr,
    .gelu_bwd = nullptr,
    .swiglu_fwd = nullptr,
    .swiglu_bwd = nullptr,
    .embedding_fwd = nullptr,
    .embedding_bwd = nullptr,
    .cross_entropy_part = nullptr,
    .cross_entropy_finish = nullptr,
    .sample_scan = nullptr,
    .adamw = nullptr,
    .sum_squares = nullptr,
    .cast = nullptr,
    .add = nullptr,
    .scale = nullptr,
    .zero = nullptr,
    .read = nullptr,
    .upload = nullptr,
};

}  // namespace

const Ops& plain_sizes() { return kPlainSizes; }

}  // namespace rw
