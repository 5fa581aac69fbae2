#include "libcore/model/weights.h"

#include "libcore/model/block_shape.h"

namespace rw {

BlockWeights block_weights(const ParamLayout& layout, const float* base, int64_t local_layer) {
  const TpPlace tp = layout.part().tp;
  const BlockShape s(layout.spec(), tp.size);
  const BlockParams p = block_params(layout, const_cast<float*>(base), local_layer);
  const bool adds = tp.rank == 0;
  return {.attn_norm_w = p.attn_norm_w,
          .attn_norm_b = p.attn_norm_b,
          .mlp_norm_w = p.mlp_norm_w,
          .mlp_norm_b = p.mlp_norm_b,
          .qkv = {.master = p.qkv_w, .bias = p.qkv_b, .n_out = s.qkv_n, .n_in = s.c},
          .out = {.master = p.out_w, .bias = adds ? p.out_b : nullptr, .n_out = s.c, .n_in = s.h * s.d},
          .up = {.master = p.up_w, .bias = p.up_b, .n_out = s.u, .n_in = s.c},
          .down = {.master = p.down_w, .bias = adds ? p.down_b : nullptr, .n_out = s.c, .n_in = s.f}};
}

EmbeddingWeights embedding_weights(const ParamLayout& layout, const float* base) {
  const EndParams e = end_params(layout, const_cast<float*>(base));
  return {.token = e.token_embedding,
          .position = e.position_embedding,
          .vocab = vocab_range(layout.spec(), layout.part().tp)};
}

HeadWeights head_weights(const ParamLayout& layout, const float* base) {
  const EndParams e = end_params(layout, const_cast<float*>(base));
  const VocabRange vocab = vocab_range(layout.spec(), layout.part().tp);
  return {.norm_w = e.final_norm_w,
          .norm_b = e.final_norm_b,
          .head = {.master = e.head_w, .n_out = vocab.end - vocab.begin, .n_in = layout.spec().width},
          .vocab = vocab};
}

void take_packed(PackedLinear& w, WeightUse use, const Exec& exec, Arena& arena) {
  const int threads = exec.stream.threads;
  w.fwd = arena.take(packed_fwd_bytes(w, exec), MemoryOwner::packed_weights, threads);
  if (use == WeightUse::training) w.bwd = arena.take(packed_bwd_bytes(w, exec), MemoryOwner::packed_weights, threads);
}

ResidentWeights::ResidentWeights(const ParamLayout& layout, float* masters, WeightUse use, const Exec& exec,
                                 Arena& arena) {
  const ModelPart& part = layout.part();
  for (size_t l = 0; l < part.layers.size(); ++l) {
    blocks_.push_back(block_weights(layout, masters, static_cast<int64_t>(l)));
    for (PackedLinear* linear : blocks_.back().linears()) take_packed(*linear, use, exec, arena);
  }
  if (part.embedding) embedding_ = embedding_weights(layout, masters);
  if (!part.head) return;
  head_ = head_weights(layout, masters);
  take_packed(head_.head, use, exec, arena);
}

void ResidentWeights::refresh_block(int64_t layer, const Exec& exec) {
  for (const PackedLinear* linear : blocks_[static_cast<size_t>(layer)].linears()) {
    pack_fwd(*linear, exec);
    pack_bwd(*linear, exec);
  }
}

void ResidentWeights::refresh_head(const Exec& exec) {
  pack_fwd(head_.head, exec);
  pack_bwd(head_.head, exec);
}

void ResidentWeights::refresh(const Exec& exec) {
  for (size_t l = 0; l < blocks_.size(); ++l) refresh_block(static_cast<int64_t>(l), exec);
  refresh_head(exec);
}

}  // namespace rw
