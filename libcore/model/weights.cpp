#include "libcore/model/weights.h"

namespace rw {

ResidentWeights::ResidentWeights(const ParamLayout& layout, float* masters, WeightUse use, const Exec& exec,
                                 Arena& arena) {
  const ModelSpec& s = layout.spec();
  const auto linear = [&](const float* w, const float* b, int64_t n_out, int64_t n_in) {
    PackedLinear packed{.master = w, .bias = b, .n_out = n_out, .n_in = n_in};
    packed.fwd = arena.take(packed_fwd_bytes(packed, exec), MemoryOwner::packed_weights, exec.stream.threads);
    if (use == WeightUse::training)
      packed.bwd = arena.take(packed_bwd_bytes(packed, exec), MemoryOwner::packed_weights, exec.stream.threads);
    return packed;
  };
  const int64_t qkv_n = (s.heads + 2 * s.kv_heads) * s.head_dim, up_n = s.gated_mlp() ? 2 * s.ffn : s.ffn;
  for (int64_t l = 0; l < s.layers; ++l) {
    const BlockParams p = block_params(layout, masters, l);
    blocks_.push_back({.attn_norm_w = p.attn_norm_w,
                       .attn_norm_b = p.attn_norm_b,
                       .mlp_norm_w = p.mlp_norm_w,
                       .mlp_norm_b = p.mlp_norm_b,
                       .qkv = linear(p.qkv_w, p.qkv_b, qkv_n, s.width),
                       .out = linear(p.out_w, p.out_b, s.width, s.heads * s.head_dim),
                       .up = linear(p.up_w, p.up_b, up_n, s.width),
                       .down = linear(p.down_w, p.down_b, s.width, s.ffn)});
  }
  const EndParams e = end_params(layout, masters);
  ends_ = {.token_embedding = e.token_embedding,
           .position_embedding = e.position_embedding,
           .final_norm_w = e.final_norm_w,
           .final_norm_b = e.final_norm_b,
           .head = linear(e.head_w, nullptr, s.vocab_size, s.width)};
}

void ResidentWeights::refresh(const Exec& exec) {
  for (const BlockWeights& w : blocks_)
    for (const PackedLinear* linear : {&w.qkv, &w.out, &w.up, &w.down}) pack(*linear, exec);
  pack(ends_.head, exec);
}

}  // namespace rw
