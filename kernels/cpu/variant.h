// The functions that exist once per instruction set: rw::cpu_scalar::norm_fwd, rw::cpu_avx2::norm_fwd, ... Their
// sources are compiled once per set (kernels/meson.build); dispatch.cpp makes one Ops table of each.
#pragma once
#include "kernels/ops.h"

#define RW_DECLARE_VARIANT(isa)                                     \
  namespace rw::isa {                                               \
  void bias_bwd(const BiasBwd&, Stream);                            \
  void norm_fwd(const NormFwd&, Stream);                            \
  void norm_bwd(const NormBwd&, Stream);                            \
  void rope(const Rope&, Stream);                                   \
  void attention_fwd(const AttentionFwd&, Stream);                  \
  void attention_bwd(const AttentionBwd&, Stream);                  \
  int64_t attention_workspace(const AttentionBwd&, Stream);         \
  void kv_write(const KvWrite&, Stream);                            \
  void paged_attention(const PagedAttention&, Stream);              \
  int64_t paged_attention_workspace(const PagedAttention&, Stream); \
  void quant_pack(const QuantPack&, Stream);                        \
  void quant_unpack(const QuantUnpack&, Stream);                    \
  void quant_gemm(const QuantGemm&, Stream);                        \
  int64_t quant_gemm_workspace(const QuantGemm&, Stream);           \
  void gelu_fwd(const GeluFwd&, Stream);                            \
  void gelu_bwd(const GeluBwd&, Stream);                            \
  void swiglu_fwd(const SwigluFwd&, Stream);                        \
  void swiglu_bwd(const SwigluBwd&, Stream);                        \
  void embedding_fwd(const EmbeddingFwd&, Stream);                  \
  void embedding_bwd(const EmbeddingBwd&, Stream);                  \
  void cross_entropy_part(const CrossEntropyPart&, Stream);         \
  void cross_entropy_finish(const CrossEntropyFinish&, Stream);     \
  void adamw(const AdamW&, Stream);                                 \
  void sum_squares(const SumSquares&, Stream);                      \
  void cast(const Cast&, Stream);                                   \
  void add(const Add&, Stream);                                     \
  void scale(const Scale&, Stream);                                 \
  }  // namespace rw::isa

RW_DECLARE_VARIANT(cpu_scalar)
RW_DECLARE_VARIANT(cpu_avx2)
RW_DECLARE_VARIANT(cpu_avx512)
RW_DECLARE_VARIANT(cpu_avx512_bf16)
