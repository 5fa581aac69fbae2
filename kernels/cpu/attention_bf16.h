// Attention on bf16 operands where the CPU multiplies them: three ways for attention.cpp to choose from, apart so that
// tests reach each. All have the contracts of kernels/ops.h for t = bf16. The paged ones do the tiled sequences of a
// batch (paged_tasks.h) over pages of bf16 or i8, and are called by every thread of a team.
#pragma once
#include "kernels/ops.h"

namespace rw {
namespace cpu_avx512_bf16 {  // vdpbf16ps
void attention_fwd_dot(const AttentionFwd&, Stream);
void attention_bwd_dot(const AttentionBwd&, Stream);
void paged_prefill_dot(const PagedAttention&, Stream);
void paged_attention_dot(const PagedAttention&, Stream);  // all of it, without tiles
}  // namespace cpu_avx512_bf16
namespace cpu_amx {  // tdpbf16ps: only when amx_ready()
void attention_fwd_tiles(const AttentionFwd&, Stream);
void attention_bwd_tiles(const AttentionBwd&, Stream);
void paged_prefill_tiles(const PagedAttention&, Stream);
}  // namespace cpu_amx
}  // namespace rw
