#include "libcore/model/block.h"

#include <cmath>
#include <cstddef>

namespace rw {
namespace {

// Column `c` of the first row of a row-major activation.
void* at(void* base, int64_t c, DType t) { return static_cast<std::byte*>(base) + c * dtype_bytes(t); }

void attention_part(const BlockActs& a, const AttnBatch& batch, const BlockShape& s, const RopeTable* rope,
                    const Exec& exec) {
  void *k = at(a.qkv, s.h * s.d, exec.t), *v = at(a.qkv, (s.h + s.hkv) * s.d, exec.t);
  if (rope != nullptr)
    exec.ops.rope({.x = a.qkv,
                   .pos = batch.pos,
                   .cos = rope->cos(),
                   .sin = rope->sin(),
                   .rows = batch.rows,
                   .heads = s.h + s.hkv,
                   .d = s.d,
                   .ld = s.qkv_n,
                   .t = exec.t},
                  exec.stream);
  if (batch.paged == nullptr) {
    exec.ops.attention_fwd({.o = a.attn,
                            .lse = a.lse,
                            .q = a.qkv,
                            .k = k,
                            .v = v,
                            .ldo = s.h * s.d,
                            .ldq = s.qkv_n,
                            .ldkv = s.qkv_n,
                            .cu_seqlens = batch.cu_seqlens,
                            .n_seq = batch.n_seq,
                            .heads = s.h,
                            .kv_heads = s.hkv,
                            .d = s.d,
                            .scale = s.scale,
                            .t = exec.t,
                            .workspace = exec.workspace},
                           exec.stream);
    return;
  }
  const PagedKv& p = *batch.paged;
  exec.ops.kv_write({.k_pages = p.k_pages,
                     .v_pages = p.v_pages,
                     .k = k,
                     .v = v,
                     .slot = p.slot,
                     .rows = batch.rows,
                     .kv_heads = s.hkv,
                     .d = s.d,
                     .ld = s.qkv_n,
                     .t = exec.t},
                    exec.stream);
  exec.ops.paged_attention({.o = a.attn,
                            .q = a.qkv,
                            .k_pages = p.k_pages,
                            .v_pages = p.v_pages,
                            .page_table = p.page_table,
                            .q_start = batch.cu_seqlens,
                            .context_len = p.context_len,
                            .n_seq = batch.n_seq,
                            .max_pages = p.max_pages,
                            .page_tokens = p.page_tokens,
                            .heads = s.h,
                            .kv_heads = s.hkv,
                            .d = s.d,
                            .ldo = s.h * s.d,
                            .ldq = s.qkv_n,
                            .scale = s.scale,
                            .t = exec.t},
                           exec.stream);
}

}  // namespace

BlockShape::BlockShape(const ModelSpec& spec)
    : norm(spec.layer_norm() ? NormKind::layer : NormKind::rms),
      gated(spec.gated_mlp()),
      c(spec.width),
      h(spec.heads),
      hkv(spec.kv_heads),
      d(spec.head_dim),
      f(spec.ffn),
      u(gated ? 2 * f : f),
      qkv_n((h + 2 * hkv) * d),
      eps(static_cast<float>(spec.norm_eps)),
      scale(static_cast<float>(1.0 / std::sqrt(static_cast<double>(d)))) {}

void block_fwd(const BlockWeights& w, const BlockActs& a, const AttnBatch& batch, const BlockShape& s,
               const RopeTable* rope, const Exec& exec) {
  const int64_t rows = batch.rows;
  const Ops& ops = exec.ops;
  ops.norm_fwd({.y = a.attn_norm,
                .mean = a.attn_mean,
                .rstd = a.attn_rstd,
                .x = a.x_in,
                .add = a.branch_in,
                .sum = a.branch_in != nullptr ? a.x : nullptr,
                .w = w.attn_norm_w,
                .b = w.attn_norm_b,
                .rows = rows,
                .c = s.c,
                .eps = s.eps,
                .kind = s.norm,
                .t = exec.t},
               exec.stream);
  linear_fwd(a.qkv, a.attn_norm, rows, w.qkv, exec);
  attention_part(a, batch, s, rope, exec);
  linear_fwd(a.out, a.attn, rows, w.out, exec);
  ops.norm_fwd({.y = a.mlp_norm,
                .mean = a.mlp_mean,
                .rstd = a.mlp_rstd,
                .x = a.x,
                .add = a.out,
                .sum = a.mid,
                .w = w.mlp_norm_w,
                .b = w.mlp_norm_b,
                .rows = rows,
                .c = s.c,
                .eps = s.eps,
                .kind = s.norm,
                .t = exec.t},
               exec.stream);
  linear_fwd(a.up, a.mlp_norm, rows, w.up, exec);
  if (s.gated) ops.swiglu_fwd({.y = a.act, .x = a.up, .rows = rows, .f = s.f, .t = exec.t}, exec.stream);
  else ops.gelu_fwd({.y = a.act, .x = a.up, .n = rows * s.f, .t = exec.t}, exec.stream);
  linear_fwd(a.branch, a.act, rows, w.down, exec);
}

void block_bwd_input(const BlockWeights& w, const BlockActs& a, const BlockGradActs& g, const AttnBatch& batch,
                     const BlockShape& s, const RopeTable* rope, const Exec& exec) {
  const int64_t rows = batch.rows;
  const Ops& ops = exec.ops;
  linear_bwd_input(g.d_act, g.d_out, rows, w.down, exec);
  if (s.gated)
    ops.swiglu_bwd({.d_x = g.d_up, .d_y = g.d_act, .x = a.up, .rows = rows, .f = s.f, .t = exec.t}, exec.stream);
  else ops.gelu_bwd({.d_x = g.d_up, .d_y = g.d_act, .x = a.up, .n = rows * s.f, .t = exec.t}, exec.stream);
  linear_bwd_input(g.d_mlp_norm, g.d_up, rows, w.up, exec);
  ops.norm_bwd({.d_x = g.d_mid,
                .d_y = g.d_mlp_norm,
                .x = a.mid,
                .d_res = g.d_out,
                .mean = a.mlp_mean,
                .rstd = a.mlp_rstd,
                .w = w.mlp_norm_w,
                .rows = rows,
                .c = s.c,
                .kind = s.norm,
                .t = exec.t},
               exec.stream);
  linear_bwd_input(g.d_attn, g.d_mid, rows, w.out, exec);
  ops.attention_bwd({.d_q = g.d_qkv,
                     .d_k = at(g.d_qkv, s.h * s.d, exec.t),
                     .d_v = at(g.d_qkv, (s.h + s.hkv) * s.d, exec.t),
                     .d_o = g.d_attn,
                     .q = a.qkv,
                     .k = at(a.qkv, s.h * s.d, exec.t),
                     .v = at(a.qkv, (s.h + s.hkv) * s.d, exec.t),
                     .o = a.attn,
                     .lse = a.lse,
                     .ldo = s.h * s.d,
                     .ldq = s.qkv_n,
                     .ldkv = s.qkv_n,
                     .cu_seqlens = batch.cu_seqlens,
                     .n_seq = batch.n_seq,
                     .heads = s.h,
                     .kv_heads = s.hkv,
                     .d = s.d,
                     .scale = s.scale,
                     .t = exec.t,
                     .workspace = exec.workspace},
                    exec.stream);
  if (rope != nullptr)
    ops.rope({.x = g.d_qkv,
              .pos = batch.pos,
              .cos = rope->cos(),
              .sin = rope->sin(),
              .rows = rows,
              .heads = s.h + s.hkv,
              .d = s.d,
              .ld = s.qkv_n,
              .direction = Direction::inverse,
              .t = exec.t},
             exec.stream);
  linear_bwd_input(g.d_attn_norm, g.d_qkv, rows, w.qkv, exec);
  ops.norm_bwd({.d_x = g.d_x,
                .d_y = g.d_attn_norm,
                .x = a.x,
                .d_res = g.d_mid,
                .mean = a.attn_mean,
                .rstd = a.attn_rstd,
                .w = w.attn_norm_w,
                .rows = rows,
                .c = s.c,
                .kind = s.norm,
                .t = exec.t},
               exec.stream);
}

void block_bwd_weight(const BlockWeights& w, const BlockActs& a, const BlockGradActs& g, const AttnBatch& batch,
                      const BlockParams& d, Write write, const BlockShape& s, const Exec& exec) {
  const int64_t rows = batch.rows;
  linear_bwd_weight({.d_w = d.down_w, .d_b = d.down_b, .write = write}, g.d_out, a.act, rows, w.down, exec);
  linear_bwd_weight({.d_w = d.up_w, .d_b = d.up_b, .write = write}, g.d_up, a.mlp_norm, rows, w.up, exec);
  exec.ops.norm_bwd({.d_w = d.mlp_norm_w,
                     .d_b = d.mlp_norm_b,
                     .d_y = g.d_mlp_norm,
                     .x = a.mid,
                     .mean = a.mlp_mean,
                     .rstd = a.mlp_rstd,
                     .w = w.mlp_norm_w,
                     .rows = rows,
                     .c = s.c,
                     .kind = s.norm,
                     .t = exec.t,
                     .write = write},
                    exec.stream);
  linear_bwd_weight({.d_w = d.out_w, .d_b = d.out_b, .write = write}, g.d_mid, a.attn, rows, w.out, exec);
  linear_bwd_weight({.d_w = d.qkv_w, .d_b = d.qkv_b, .write = write}, g.d_qkv, a.attn_norm, rows, w.qkv, exec);
  exec.ops.norm_bwd({.d_w = d.attn_norm_w,
                     .d_b = d.attn_norm_b,
                     .d_y = g.d_attn_norm,
                     .x = a.x,
                     .mean = a.attn_mean,
                     .rstd = a.attn_rstd,
                     .w = w.attn_norm_w,
                     .rows = rows,
                     .c = s.c,
                     .kind = s.norm,
                     .t = exec.t,
                     .write = write},
                    exec.stream);
}

}  // namespace rw
