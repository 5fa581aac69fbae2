#include "libcore/model/ends.h"

#include <algorithm>
#include <cstddef>

#include "kernels/rounded_up.h"
#include "libcore/base/check.h"

namespace rw {
namespace {

const std::byte* row(const void* base, int64_t r, int64_t width, DType t) {
  return static_cast<const std::byte*>(base) + r * width * dtype_bytes(t);
}
std::byte* row(void* base, int64_t r, int64_t width, DType t) {
  return static_cast<std::byte*>(base) + r * width * dtype_bytes(t);
}

PackedLinear with_stride(PackedLinear head, int64_t ld) {
  head.ld_out = ld;
  return head;
}

}  // namespace

int64_t logits_stride(int64_t vocab) {
  constexpr int64_t kElements = 8;
  return rounded_up(vocab, kElements);
}

void embed_fwd(const EmbeddingWeights& w, const Embed& e, const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  exec.ops.embedding_fwd({.x = ctx.tp.partial(TpBuffer::branch),
                          .table = w.token,
                          .pos_table = ctx.tp.place().rank == 0 ? w.position : nullptr,
                          .id = e.ids,
                          .pos = e.batch.pos,
                          .rows = e.batch.rows,
                          .c = ctx.shape.c,
                          .id_begin = w.vocab.begin,
                          .id_end = w.vocab.end,
                          .t = exec.t,
                          .table_t = w.token_t},
                         exec.stream);
  const void* sum = ctx.tp.reduce(TpBuffer::branch, e.batch.rows);
  exec.ops.cast({.y = e.x, .x = sum, .n = ctx.tp.local(e.batch.rows).rows * ctx.shape.c, .yt = exec.t, .xt = exec.t},
                exec.stream);
}

void embed_bwd(const EmbeddingWeights& w, const EmbedBackward& e, const ParamLayout& layout, GradSink& sink,
               const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  const int64_t token_group = layout.find_group(GroupKind::token_embedding),
                position_group = layout.find_group(GroupKind::position_embedding);
  const auto open = [&](int64_t group) -> float* {
    if (group < 0) return nullptr;
    const GradPlace place = sink.open(group);
    float* grads = place.base + layout.group(group).range.offset;
    if (place.write == Write::overwrite)  // a tied head may have been there before
      exec.ops.zero({.y = grads, .bytes = layout.group(group).range.n * static_cast<int64_t>(sizeof(float))},
                    exec.stream);
    return grads;
  };
  float* d_token = open(token_group);
  float* d_position = open(position_group);
  // Every rank has its own rows of the vocabulary and needs all rows of the batch for them; positions come along,
  // whole.
  exec.ops.embedding_bwd({.d_table = d_token,
                          .d_pos_table = d_position,
                          .d_x = ctx.tp.gather(e.d_x, e.batch.rows, TpBuffer::gathered),
                          .id = e.ids,
                          .pos = e.batch.pos,
                          .rows = e.batch.rows,
                          .c = ctx.shape.c,
                          .id_begin = w.vocab.begin,
                          .id_end = w.vocab.end,
                          .t = exec.t},
                         exec.stream);
  sink.done(token_group);
  if (position_group >= 0) sink.done(position_group);
}

Head::Head(const Plan& plan, NormKind norm, const Exec& exec, const TensorParallel& tp, Arena& arena) : plan_(plan) {
  plan_.chunk_rows = std::clamp<int64_t>(plan.chunk_rows, 1, plan.max_rows);
  const int threads = exec.stream.threads;
  const int64_t element = dtype_bytes(exec.t);
  // Logits are of chosen rows, the loss is of all.
  const int64_t normed = plan_.training ? tp.max_local_rows() : plan_.chunk_rows;
  const auto take = [&](int64_t bytes) { return arena.take(bytes, MemoryOwner::activations, threads); };
  const auto floats = [&](int64_t n) { return arena.take_n<float>(n, MemoryOwner::activations, threads); };
  norm_ = take(normed * plan_.width * element);
  rstd_ = floats(normed);
  if (norm == NormKind::layer) mean_ = floats(normed);
  if (!plan_.training) {
    picked_ = take(plan_.chunk_rows * plan_.width * element);
    return;
  }
  logits_ld_ = logits_stride(plan_.vocab);
  logits_ = take(plan_.chunk_rows * logits_ld_ * element);
  losses_ = arena.take_mirrored<float>(plan_.kept_batches * plan_.max_rows, MemoryOwner::data);
  kept_.reserve(static_cast<size_t>(plan_.kept_batches));
  parts_ = take_shared(tp.comm(), arena,
                       {.bytes = tp.place().size * plan_.chunk_rows * 3 * static_cast<int64_t>(sizeof(float)),
                        .owner = MemoryOwner::activations});
}

const void* Head::normed(const HeadWeights& w, const void* x, int64_t rows, const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  exec.ops.norm_fwd({.y = norm_,
                     .mean = mean_,
                     .rstd = rstd_,
                     .x = x,
                     .w = w.norm_w,
                     .b = w.norm_b,
                     .rows = ctx.tp.local(rows).rows,
                     .c = ctx.shape.c,
                     .eps = ctx.shape.eps,
                     .kind = ctx.shape.norm,
                     .t = exec.t},
                    exec.stream);
  return ctx.tp.gather(norm_, rows, TpBuffer::gathered);
}

void Head::chunk_loss(const HeadWeights& w, const Chunk& chunk, const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  const int64_t n = chunk.n, tp = ctx.tp.place().size, part_n = n * 3;
  linear_fwd(logits_, row(chunk.normed, chunk.first, ctx.shape.c, exec.t), n, with_stride(w.head, logits_ld_), exec);
  float* mine = parts_.floats() + ctx.tp.place().rank * part_n;
  exec.ops.cross_entropy_part({.part = mine,
                               .logits = logits_,
                               .target = chunk.target + chunk.first,
                               .rows = n,
                               .v = plan_.vocab,
                               .v_begin = w.vocab.begin,
                               .ld = logits_ld_,
                               .t = exec.t},
                              exec.stream);
  cuts_.clear();
  for (int64_t r = 0; r <= tp; ++r) cuts_.push_back(r * part_n);
  ctx.tp.comm().all_gather(mine, parts_.data, cuts_, DType::f32);
  exec.ops.cross_entropy_finish({.loss = losses_.device + kept_rows_ + chunk.first,
                                 .logits = logits_,
                                 .parts = parts_.floats(),
                                 .n_parts = tp,
                                 .target = chunk.target + chunk.first,
                                 .rows = n,
                                 .v = plan_.vocab,
                                 .v_begin = w.vocab.begin,
                                 .ld = logits_ld_,
                                 .d_scale = chunk.d_scale,
                                 .t = exec.t},
                                exec.stream);
}

void Head::keep_losses(int64_t rows) {
  CHECK(static_cast<int64_t>(kept_.size()) < plan_.kept_batches, "losses of %lld batches are kept, and one more comes",
        static_cast<long long>(plan_.kept_batches));
  kept_.push_back(rows);
  kept_rows_ += rows;
}

// By chunks and batches, as they were made.
double Head::take_loss(const Exec& exec) {
  exec.ops.read({.host = losses_.host, .device = losses_.device, .n = kept_rows_, .t = DType::f32}, exec.stream);
  double sum = 0;
  const float* at = losses_.host;
  for (const int64_t rows : kept_) {
    double batch = 0;
    for (int64_t first = 0; first < rows; first += plan_.chunk_rows) {
      double chunk = 0;
      for (int64_t r = first; r < std::min(rows, first + plan_.chunk_rows); ++r) chunk += static_cast<double>(at[r]);
      batch += chunk;
    }
    sum += batch;
    at += rows;
  }
  kept_.clear();
  kept_rows_ = 0;
  return sum;
}

void Head::loss(const HeadWeights& w, const void* x, const int32_t* target, int64_t rows, const BlockContext& ctx) {
  const void* all = normed(w, x, rows, ctx);
  for (int64_t first = 0; first < rows; first += plan_.chunk_rows)
    chunk_loss(w,
               {.normed = all,
                .target = target,
                .first = first,
                .n = std::min(plan_.chunk_rows, rows - first),
                .d_scale = 0.0f},
               ctx);
  keep_losses(rows);
}

void Head::loss_and_backward(const HeadWeights& w, const Backward& b, const ParamLayout& layout, GradSink& sink,
                             const BlockContext& ctx) {
  const Exec& exec = ctx.exec;
  const int64_t c = ctx.shape.c;
  const int64_t head_group = layout.find_group(layout.tied_here() ? GroupKind::token_embedding : GroupKind::head);
  const int64_t norm_group = layout.find_group(GroupKind::final_norm);
  const void* all = normed(w, b.x, b.rows, ctx);
  const PackedLinear head = with_stride(w.head, logits_ld_);
  const GradPlace head_place = sink.open(head_group);
  float* d_head = end_params(layout, head_place.base).head_w;
  void* d_normed = ctx.tp.partial(TpBuffer::d_mlp_norm);
  for (int64_t first = 0; first < b.rows; first += plan_.chunk_rows) {
    const int64_t n = std::min(plan_.chunk_rows, b.rows - first);
    chunk_loss(w, {.normed = all, .target = b.target, .first = first, .n = n, .d_scale = b.d_scale}, ctx);
    linear_bwd_input(row(d_normed, first, c, exec.t), logits_, n, head, exec);
    linear_bwd_weight({.d_w = d_head, .d_b = nullptr, .write = first == 0 ? head_place.write : Write::accumulate},
                      logits_, row(all, first, c, exec.t), n, head, exec);
  }
  const void* d_y = ctx.tp.reduce(TpBuffer::d_mlp_norm, b.rows);
  const GradPlace norm_place = sink.open(norm_group);
  const EndParams grads = end_params(layout, norm_place.base);
  exec.ops.norm_bwd({.d_x = b.d_x,
                     .d_w = grads.final_norm_w,
                     .d_b = grads.final_norm_b,
                     .d_y = d_y,
                     .x = b.x,
                     .mean = mean_,
                     .rstd = rstd_,
                     .w = w.norm_w,
                     .rows = ctx.tp.local(b.rows).rows,
                     .c = c,
                     .kind = ctx.shape.norm,
                     .t = exec.t,
                     .write = norm_place.write},
                    exec.stream);
  sink.done(norm_group);
  // A tied head shares its group with the embedding: where both are here, the embedding's backward finishes it.
  if (!layout.tied_here() || !layout.part().embedding) sink.done(head_group);
  keep_losses(b.rows);
}

void Head::logits(const HeadWeights& w, const Rows& r, float* out, const BlockContext& ctx) {
  CHECK(r.n <= plan_.chunk_rows && picked_ != nullptr, "%lld rows of logits, planned for %lld",
        static_cast<long long>(r.n), static_cast<long long>(plan_.chunk_rows));
  const Exec& exec = ctx.exec;
  exec.ops.embedding_fwd(
      {.x = picked_, .table = r.x, .id = r.chosen, .rows = r.n, .c = ctx.shape.c, .t = exec.t, .table_t = exec.t},
      exec.stream);
  linear_fwd_f32(out, normed(w, picked_, r.n, ctx), r.n, w.head, exec);
}

}  // namespace rw
