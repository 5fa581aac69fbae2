// The ops of the `cuda` table: each puts its work on the stream and returns.
#pragma once
#include "kernels/ops.h"

namespace rw {

const Ops& cuda_ops();

}  // namespace rw

namespace rw::cuda {

// What a device gives out: cuda_ops(), and in a simulator whose guard is on, for this host thread, with a look at where
// the operands lie.
const Ops& device_ops();

// The largest head size that attention_fwd and attention_bwd take: what a block's shared memory has room for.
int64_t most_attention_head_size();

// Whether the device of this host thread has products of warpgroups (compute capability 9.0), and they give the right
// sums. The first time that a device is asked it is tried, which waits for it: not while a stream is captured.
bool has_warpgroup_products();

void gemm(const Gemm&, Stream);
void gemm_pack(const GemmPack&, Stream);
int64_t gemm_workspace(const Gemm&, Stream);
int64_t packed_bytes(const GemmPack&, Stream);
void quant_pack(const QuantPack&, Stream);
void quant_unpack(const QuantUnpack&, Stream);
void quant_gemm(const QuantGemm&, Stream);
int64_t quant_packed_bytes(const QuantPack&, Stream);
int64_t quant_gemm_workspace(const QuantGemm&, Stream);
void bias_bwd(const BiasBwd&, Stream);
void norm_fwd(const NormFwd&, Stream);
void norm_bwd(const NormBwd&, Stream);
void rope(const Rope&, Stream);
void attention_fwd(const AttentionFwd&, Stream);
void attention_bwd(const AttentionBwd&, Stream);
int64_t attention_workspace(const AttentionBwd&, Stream);
void kv_write(const KvWrite&, Stream);
void paged_attention(const PagedAttention&, Stream);
int64_t paged_attention_workspace(const PagedAttention&, Stream);
void gelu_fwd(const GeluFwd&, Stream);
void gelu_bwd(const GeluBwd&, Stream);
void swiglu_fwd(const SwigluFwd&, Stream);
void swiglu_bwd(const SwigluBwd&, Stream);
void embedding_fwd(const EmbeddingFwd&, Stream);
void embedding_bwd(const EmbeddingBwd&, Stream);
void cross_entropy_part(const CrossEntropyPart&, Stream);
void cross_entropy_finish(const CrossEntropyFinish&, Stream);
void sample_scan(const SampleScan&, Stream);
void adamw(const AdamW&, Stream);
void sum_squares(const SumSquares&, Stream);
void cast(const Cast&, Stream);
void add(const Add&, Stream);
void scale(const Scale&, Stream);
void zero(const Zero&, Stream);
void read(const Read&, Stream);
void upload(const Upload&, Stream);

}  // namespace rw::cuda
