#include "libcore/model/block.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace rw {
namespace {

// Column `c` of the first row of a row-major activation.
void* at(void* base, int64_t c, DType t) { return static_cast<std::byte*>(base) + c * dtype_bytes(t); }

void rotate(void* qkv, Direction direction, const AttnBatch& batch, const BlockContext& ctx) {
  if (ctx.rope == nullptr) return;
  const BlockShape& s = ctx.shape;
  ctx.exec.ops.rope({.x = qkv,
                     .pos = batch.pos,
                     .cos = ctx.rope->cos(),
                     .sin = ctx.rope->sin(),
                     .rows = batch.rows,
                     .heads = s.h + s.hkv,
                     .d = s.d,
                     .ld = s.qkv_n,
                     .direction = direction,
                     .t = ctx.exec.t},
                    ctx.exec.stream);
}

void paged_attention(const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  const void *k = at(a.qkv, s.h * s.d, exec.t), *v = at(a.qkv, (s.h + s.hkv) * s.d, exec.t);
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
                     .t = exec.t,
                     .kv_t = p.kv_t.value_or(exec.t),
                     .k_scales = p.k_scales,
                     .v_scales = p.v_scales},
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
                            .t = exec.t,
                            .kv_t = p.kv_t.value_or(exec.t),
                            .k_scales = p.k_scales,
                            .v_scales = p.v_scales,
                            .fixed_order = exec.deterministic,
                            .workspace = exec.workspace},
                           exec.stream);
}

// The norm before the mlp, up, the activation: everything of the mlp but its last product.
void mlp_until_act(const BlockWeights& w, const BlockActs& a, int64_t rows, const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  exec.ops.norm_fwd({.y = a.mlp_norm,
                     .mean = a.mlp_mean,
                     .rstd = a.mlp_rstd,
                     .x = a.x,
                     .add = ctx.tp.reduce(TpBuffer::branch, rows),
                     .sum = a.mid,
                     .w = w.mlp_norm_w,
                     .b = w.mlp_norm_b,
                     .rows = ctx.tp.local(rows).rows,
                     .c = s.c,
                     .eps = s.eps,
                     .kind = s.norm,
                     .t = exec.t},
                    exec.stream);
  const void* const norm = ctx.tp.gather(a.mlp_norm, rows, TpBuffer::gathered);
  if (!s.gated) return linear_gelu_fwd({.y = a.up, .act = a.act}, norm, rows, w.up, exec);
  linear_fwd(a.up, norm, rows, w.up, exec);
  exec.ops.swiglu_fwd({.y = a.act, .x = a.up, .rows = rows, .f = s.f, .t = exec.t}, exec.stream);
}

// From the block's input to the activation of the mlp. x: where x_in + branch_in is formed.
void until_act(const BlockWeights& w, const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  const int64_t rows = batch.rows;
  exec.ops.norm_fwd({.y = a.attn_norm,
                     .mean = a.attn_mean,
                     .rstd = a.attn_rstd,
                     .x = a.x_in,
                     .add = a.branch_in,
                     .sum = a.branch_in != nullptr ? a.x : nullptr,
                     .w = w.attn_norm_w,
                     .b = w.attn_norm_b,
                     .rows = ctx.tp.local(rows).rows,
                     .c = s.c,
                     .eps = s.eps,
                     .kind = s.norm,
                     .t = exec.t},
                    exec.stream);
  linear_fwd(a.qkv, ctx.tp.gather(a.attn_norm, rows, TpBuffer::gathered), rows, w.qkv, exec);
  rotate(a.qkv, Direction::forward, batch, ctx);
  if (batch.paged != nullptr) paged_attention(a, batch, ctx);
  else block_attention(a, batch, ctx);
  linear_fwd(ctx.tp.partial(TpBuffer::branch), a.attn, rows, w.out, exec);
  mlp_until_act(w, a, rows, ctx);
}

// d_x of a norm, with what arrives along the residual stream added.
struct NormInput {
  void* d_x;
  const void *d_y, *x, *d_res;
  const float *mean, *rstd, *w;
};
void norm_bwd_input(const NormInput& n, int64_t local_rows, const BlockContext& ctx) {
  ctx.exec.ops.norm_bwd({.d_x = n.d_x,
                         .d_y = n.d_y,
                         .x = n.x,
                         .d_res = n.d_res,
                         .mean = n.mean,
                         .rstd = n.rstd,
                         .w = n.w,
                         .rows = local_rows,
                         .c = ctx.shape.c,
                         .kind = ctx.shape.norm,
                         .t = ctx.exec.t},
                        ctx.exec.stream);
}

struct NormWeight {
  float *d_w, *d_b;
  const void *d_y, *x;
  const float *mean, *rstd;
};
void norm_bwd_weight(const NormWeight& n, Write write, int64_t local_rows, const BlockContext& ctx) {
  ctx.exec.ops.norm_bwd({.d_w = n.d_w,
                         .d_b = n.d_b,
                         .d_y = n.d_y,
                         .x = n.x,
                         .mean = n.mean,
                         .rstd = n.rstd,
                         .w = nullptr,
                         .rows = local_rows,
                         .c = ctx.shape.c,
                         .kind = ctx.shape.norm,
                         .t = ctx.exec.t,
                         .write = write},
                        ctx.exec.stream);
}

// The sum over ranks of the gradient in a buffer, kept elsewhere where it must outlive the buffer.
const void* reduced(TpBuffer buffer, void* keep, int64_t rows, const BlockContext& ctx) {
  const void* sum = ctx.tp.reduce(buffer, rows);
  if (keep == nullptr) return sum;
  const DType t = ctx.exec.t;
  ctx.exec.ops.cast({.y = keep, .x = sum, .n = ctx.tp.local(rows).rows * ctx.shape.c, .yt = t, .xt = t},
                    ctx.exec.stream);
  return keep;
}

void attention_bwd(const BlockActs& a, const BlockGradActs& g, const AttnBatch& batch, const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  exec.ops.attention_bwd({.d_q = g.d_qkv,
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
}

}  // namespace

void block_fwd(const BlockWeights& w, BlockActs& a, const AttnBatch& batch, const BlockContext& ctx) {
  until_act(w, a, batch, ctx);
  linear_fwd(ctx.tp.partial(TpBuffer::branch), a.act, batch.rows, w.down, ctx.exec);
  a.branch = ctx.tp.reduce(TpBuffer::branch, batch.rows);
}

void block_attention(const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  exec.ops.attention_fwd({.o = a.attn,
                          .lse = a.lse,
                          .q = a.qkv,
                          .k = at(a.qkv, s.h * s.d, exec.t),
                          .v = at(a.qkv, (s.h + s.hkv) * s.d, exec.t),
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
}

void block_recompute(const BlockWeights& w, const BlockActs& a, const AttnBatch& batch, const BlockContext& ctx) {
  BlockActs again = a;
  again.x_in = a.x;
  again.branch_in = nullptr;
  until_act(w, again, batch, ctx);
}

void block_bwd_input(const BlockWeights& w, const BlockActs& a, BlockGradActs& g, const AttnBatch& batch,
                     const BlockContext& ctx) {
  const BlockShape& s = ctx.shape;
  const Exec& exec = ctx.exec;
  const int64_t rows = batch.rows, local_rows = ctx.tp.local(rows).rows;
  g.d_out_full = ctx.tp.gather(g.d_out, rows, TpBuffer::d_out);
  if (s.gated) {
    linear_bwd_input(g.d_act, g.d_out_full, rows, w.down, exec);
    exec.ops.swiglu_bwd({.d_x = g.d_up, .d_y = g.d_act, .x = a.up, .rows = rows, .f = s.f, .t = exec.t}, exec.stream);
  } else {
    linear_gelu_bwd_input({.d_of = g.d_up, .of = a.up}, g.d_out_full, rows, w.down, exec);
  }
  linear_bwd_input(ctx.tp.partial(TpBuffer::d_mlp_norm), g.d_up, rows, w.up, exec);
  g.d_mlp_norm = reduced(TpBuffer::d_mlp_norm, g.keep_mlp_norm, rows, ctx);
  norm_bwd_input({.d_x = g.d_mid,
                  .d_y = g.d_mlp_norm,
                  .x = a.mid,
                  .d_res = g.d_out,
                  .mean = a.mlp_mean,
                  .rstd = a.mlp_rstd,
                  .w = w.mlp_norm_w},
                 local_rows, ctx);
  g.d_mid_full = ctx.tp.gather(g.d_mid, rows, TpBuffer::d_mid);
  linear_bwd_input(g.d_attn, g.d_mid_full, rows, w.out, exec);
  attention_bwd(a, g, batch, ctx);
  rotate(g.d_qkv, Direction::inverse, batch, ctx);
  linear_bwd_input(ctx.tp.partial(TpBuffer::d_attn_norm), g.d_qkv, rows, w.qkv, exec);
  g.d_attn_norm = reduced(TpBuffer::d_attn_norm, g.keep_attn_norm, rows, ctx);
  norm_bwd_input({.d_x = g.d_x,
                  .d_y = g.d_attn_norm,
                  .x = a.x,
                  .d_res = g.d_mid,
                  .mean = a.attn_mean,
                  .rstd = a.attn_rstd,
                  .w = w.attn_norm_w},
                 local_rows, ctx);
}

void block_bwd_weight(const BlockActs& a, const BlockGradActs& g, int64_t rows, const WeightGrads& grads,
                      const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  const BlockShape& s = ctx.shape;
  const BlockParams& d = grads.d;
  const Write write = grads.write;
  const int64_t local_rows = ctx.tp.local(rows).rows;
  // A weight half that comes later gathers again: the buffers have served other layers since.
  const bool later = g.keep_mlp_norm != nullptr;
  const void* d_out = later ? ctx.tp.gather(g.d_out, rows, TpBuffer::d_out) : g.d_out_full;
  linear_bwd_weight({.d_w = d.down_w, .d_b = d.down_b, .write = write}, d_out, a.act, rows, {.n_out = s.c, .n_in = s.f},
                    exec);
  linear_bwd_weight({.d_w = d.up_w, .d_b = d.up_b, .write = write}, g.d_up,
                    ctx.tp.gather(a.mlp_norm, rows, TpBuffer::gathered), rows, {.n_out = s.u, .n_in = s.c}, exec);
  norm_bwd_weight({.d_w = d.mlp_norm_w,
                   .d_b = d.mlp_norm_b,
                   .d_y = g.d_mlp_norm,
                   .x = a.mid,
                   .mean = a.mlp_mean,
                   .rstd = a.mlp_rstd},
                  write, local_rows, ctx);
  const void* d_mid = later ? ctx.tp.gather(g.d_mid, rows, TpBuffer::d_mid) : g.d_mid_full;
  linear_bwd_weight({.d_w = d.out_w, .d_b = d.out_b, .write = write}, d_mid, a.attn, rows,
                    {.n_out = s.c, .n_in = s.h * s.d}, exec);
  linear_bwd_weight({.d_w = d.qkv_w, .d_b = d.qkv_b, .write = write}, g.d_qkv,
                    ctx.tp.gather(a.attn_norm, rows, TpBuffer::gathered), rows, {.n_out = s.qkv_n, .n_in = s.c}, exec);
  norm_bwd_weight({.d_w = d.attn_norm_w,
                   .d_b = d.attn_norm_b,
                   .d_y = g.d_attn_norm,
                   .x = a.x,
                   .mean = a.attn_mean,
                   .rstd = a.attn_rstd},
                  write, local_rows, ctx);
}

namespace {

int64_t paged_workspace(const BlockShape& s, const Exec& exec) {
  return exec.ops.paged_attention_workspace({.heads = s.h, .kv_heads = s.hkv, .d = s.d, .t = exec.t}, exec.stream);
}

}  // namespace

int64_t block_workspace_bytes(int64_t rows, int64_t n_seq, const BlockShape& s, const Exec& exec) {
  const auto linear = [&](int64_t n_out, int64_t n_in) {
    return linear_workspace_bytes(rows, {.n_out = n_out, .n_in = n_in}, exec);
  };
  // What attention needs depends on the numbers of rows and of sequences, not on how the rows are split.
  std::vector<int32_t> cu_seqlens(static_cast<size_t>(n_seq) + 1, static_cast<int32_t>(rows));
  cu_seqlens[0] = 0;
  const AttentionBwd attention{
      .cu_seqlens = cu_seqlens.data(), .n_seq = n_seq, .heads = s.h, .kv_heads = s.hkv, .d = s.d, .t = exec.t};
  return std::max({linear(s.qkv_n, s.c), linear(s.c, s.h * s.d), linear(s.u, s.c), linear(s.c, s.f),
                   exec.ops.attention_workspace(attention, exec.stream)});
}

int64_t paged_block_workspace_bytes(int64_t rows, const PackedLinear& like, const BlockShape& s, const Exec& exec) {
  const auto linear = [&](int64_t n_out, int64_t n_in) {
    return linear_fwd_workspace_bytes(rows, {.n_out = n_out, .n_in = n_in, .format = like.format, .group = like.group},
                                      exec);
  };
  return std::max(
      {linear(s.qkv_n, s.c), linear(s.c, s.h * s.d), linear(s.u, s.c), linear(s.c, s.f), paged_workspace(s, exec)});
}

}  // namespace rw
