#include "libcore/model/decoder.h"

#include <algorithm>
#include <cstring>

#include "libcore/base/check.h"

namespace rw {
namespace {

// Takes the blocks of activations of one element type.
class Taker {
 public:
  Taker(Arena& arena, const Exec& exec, int64_t rows) : arena_(arena), exec_(exec), rows_(rows) {}
  void* rows_of(int64_t width) {
    return arena_.take(rows_ * width * dtype_bytes(exec_.t), MemoryOwner::activations, exec_.stream.threads);
  }
  float* floats(int64_t n) { return arena_.take_n<float>(n, MemoryOwner::activations, exec_.stream.threads); }
  float* per_row(int64_t n = 1) { return floats(rows_ * n); }

 private:
  Arena& arena_;
  const Exec& exec_;
  int64_t rows_;
};

BlockActs take_acts(Taker& take, const BlockShape& s, void* branch) {
  BlockActs a{};
  a.x = take.rows_of(s.c);
  a.attn_norm = take.rows_of(s.c);
  a.attn_rstd = take.per_row();
  a.mlp_rstd = take.per_row();
  if (s.norm == NormKind::layer) a.attn_mean = take.per_row(), a.mlp_mean = take.per_row();
  a.qkv = take.rows_of(s.qkv_n);
  a.attn = take.rows_of(s.h * s.d);
  a.lse = take.per_row(s.h);
  a.out = branch;  // the projection's output is read once by the next norm: both branches share one buffer
  a.mid = take.rows_of(s.c);
  a.mlp_norm = take.rows_of(s.c);
  a.up = take.rows_of(s.u);
  a.act = take.rows_of(s.f);
  a.branch = branch;
  return a;
}

std::byte* row(void* base, int64_t r, int64_t width, DType t) {
  return static_cast<std::byte*>(base) + r * width * dtype_bytes(t);
}

int64_t workspace_bytes(const DecoderPlan& plan, const BlockShape& s, const Exec& exec) {
  const auto linear = [&](int64_t n_out, int64_t n_in, int64_t rows) {
    return linear_workspace_bytes(rows, {.n_out = n_out, .n_in = n_in}, exec);
  };
  int64_t most = linear(s.qkv_n, s.c, plan.max_rows);
  most = std::max(most, linear(s.c, s.h * s.d, plan.max_rows));
  most = std::max(most, linear(s.u, s.c, plan.max_rows));
  most = std::max(most, linear(s.c, s.f, plan.max_rows));
  most = std::max(most, linear(plan.spec.vocab_size, s.c, plan.head_rows));
  // What attention needs depends on the numbers of rows and of sequences, not on how the rows are split.
  std::vector<int32_t> cu_seqlens(static_cast<size_t>(plan.max_seqs) + 1, static_cast<int32_t>(plan.max_rows));
  cu_seqlens[0] = 0;
  const AttentionBwd attention{
      .cu_seqlens = cu_seqlens.data(), .n_seq = plan.max_seqs, .heads = s.h, .kv_heads = s.hkv, .d = s.d, .t = exec.t};
  return std::max(most, exec.ops.attention_workspace(attention, exec.stream));
}

}  // namespace

Decoder::Decoder(const DecoderPlan& plan, const Exec& exec, Arena& arena)
    : plan_(plan), shape_(plan.spec), exec_(exec) {
  plan_.head_rows = std::clamp<int64_t>(plan.head_rows, 1, plan.max_rows);
  exec_.workspace = arena.take(workspace_bytes(plan_, shape_, exec_), MemoryOwner::workspace, exec.stream.threads);
  if (!plan.spec.learned_position()) rope_ = std::make_unique<RopeTable>(plan.spec, plan.max_position);
  Taker take(arena, exec_, plan.max_rows);
  x0_ = take.rows_of(shape_.c);
  void* branch = take.rows_of(shape_.c);
  const bool training = plan.use == WeightUse::training;
  for (int64_t l = 0; l < (training ? plan.spec.layers : 1); ++l) acts_.push_back(take_acts(take, shape_, branch));
  x_final_ = take.rows_of(shape_.c);
  final_norm_ = take.rows_of(shape_.c);
  final_rstd_ = take.per_row();
  if (shape_.norm == NormKind::layer) final_mean_ = take.per_row();
  const int64_t element = dtype_bytes(exec_.t);
  logits_ = arena.take(plan_.head_rows * plan.spec.vocab_size * element, MemoryOwner::activations, exec.stream.threads);
  losses_ = take.floats(plan_.head_rows);
  gathered_ = arena.take(plan_.head_rows * shape_.c * element, MemoryOwner::activations, exec.stream.threads);
  if (!training) return;
  d_stream_[0] = take.rows_of(shape_.c);
  d_stream_[1] = take.rows_of(shape_.c);
  d_final_norm_ = take.rows_of(shape_.c);
  grad_acts_ = {.d_out = nullptr,
                .d_act = take.rows_of(shape_.f),
                .d_up = take.rows_of(shape_.u),
                .d_mlp_norm = take.rows_of(shape_.c),
                .d_mid = take.rows_of(shape_.c),
                .d_attn = take.rows_of(shape_.h * shape_.d),
                .d_qkv = take.rows_of(shape_.qkv_n),
                .d_attn_norm = take.rows_of(shape_.c),
                .d_x = nullptr};
}

void Decoder::embed(const int32_t* ids, const AttnBatch& batch, WeightSource& weights) {
  CHECK(batch.rows <= plan_.max_rows, "%lld rows, planned for %lld", static_cast<long long>(batch.rows),
        static_cast<long long>(plan_.max_rows));
  const EndWeights& e = weights.ends();
  exec_.ops.embedding_fwd({.x = x0_,
                           .table = e.token_embedding,
                           .pos_table = e.position_embedding,
                           .id = ids,
                           .pos = batch.pos,
                           .rows = batch.rows,
                           .c = shape_.c,
                           .t = exec_.t},
                          exec_.stream);
}

void Decoder::run_block(int64_t layer, const AttnBatch& batch, WeightSource& weights) {
  BlockActs& a = acts_[acts_.size() == 1 ? 0 : static_cast<size_t>(layer)];
  if (layer == 0) {
    a.x_in = x0_;
    a.branch_in = nullptr;
  } else {
    const BlockActs& before = acts_[acts_.size() == 1 ? 0 : static_cast<size_t>(layer - 1)];
    a.x_in = before.mid;
    a.branch_in = before.branch;
  }
  BlockActs run = a;
  if (layer == 0) run.x = x0_;
  if (layer + 1 < plan_.spec.layers) weights.prefetch(layer + 1);
  block_fwd(weights.acquire(layer), run, batch, shape_, rope_.get(), exec_);
  weights.release(layer);
}

void Decoder::final_norm(const AttnBatch& batch, WeightSource& weights) {
  const EndWeights& e = weights.ends();
  exec_.ops.norm_fwd({.y = final_norm_,
                      .mean = final_mean_,
                      .rstd = final_rstd_,
                      .x = acts_.back().mid,
                      .add = acts_.back().branch,
                      .sum = x_final_,
                      .w = e.final_norm_w,
                      .b = e.final_norm_b,
                      .rows = batch.rows,
                      .c = shape_.c,
                      .eps = shape_.eps,
                      .kind = shape_.norm,
                      .t = exec_.t},
                     exec_.stream);
}

void Decoder::forward(const int32_t* ids, const AttnBatch& batch, WeightSource& weights) {
  embed(ids, batch, weights);
  for (int64_t l = 0; l < plan_.spec.layers; ++l) run_block(l, batch, weights);
  final_norm(batch, weights);
}

void Decoder::forward_paged(const int32_t* ids, const AttnBatch& batch, const LayerPages& pages,
                            WeightSource& weights) {
  embed(ids, batch, weights);
  for (int64_t l = 0; l < plan_.spec.layers; ++l) {
    const PagedKv paged = pages(l);
    AttnBatch with_pages = batch;
    with_pages.paged = &paged;
    run_block(l, with_pages, weights);
  }
  final_norm(batch, weights);
}

double Decoder::head_rows_loss(int64_t first, int64_t n, const int32_t* target, float d_scale, WeightSource& weights) {
  const EndWeights& e = weights.ends();
  linear_fwd(logits_, row(final_norm_, first, shape_.c, exec_.t), n, e.head, exec_);
  exec_.ops.cross_entropy({.loss = losses_,
                           .logits = logits_,
                           .target = target + first,
                           .rows = n,
                           .v = plan_.spec.vocab_size,
                           .d_scale = d_scale,
                           .t = exec_.t},
                          exec_.stream);
  double sum = 0;
  for (int64_t r = 0; r < n; ++r) sum += static_cast<double>(losses_[r]);
  return sum;
}

double Decoder::loss(const int32_t* target, const AttnBatch& batch, WeightSource& weights) {
  double sum = 0;
  for (int64_t first = 0; first < batch.rows; first += plan_.head_rows)
    sum += head_rows_loss(first, std::min(plan_.head_rows, batch.rows - first), target, 0.0f, weights);
  return sum;
}

void Decoder::head_backward(int64_t first, int64_t n, const GradPlace& place, const EndParams& grads, bool first_chunk,
                            WeightSource& weights) {
  const EndWeights& e = weights.ends();
  linear_bwd_input(row(d_final_norm_, first, shape_.c, exec_.t), logits_, n, e.head, exec_);
  linear_bwd_weight({.d_w = grads.head_w, .d_b = nullptr, .write = first_chunk ? place.write : Write::accumulate},
                    logits_, row(final_norm_, first, shape_.c, exec_.t), n, e.head, exec_);
}

double Decoder::loss_and_backward(const int32_t* ids, const int32_t* target, float d_scale, const AttnBatch& batch,
                                  WeightSource& weights, GradSink& sink, const ParamLayout& layout,
                                  const std::function<void()>& between_blocks) {
  const int64_t layers = plan_.spec.layers;
  // A tied head writes the token embedding's gradient first; the embedding's own backward then adds to it.
  const GradPlace end = sink.open(layers + 1), start = sink.open(0);
  const bool tied = plan_.spec.tied_head;
  const GradPlace& head_place = tied ? start : end;
  const EndParams head_grads = end_params(layout, head_place.base);
  double sum = 0;
  for (int64_t first = 0; first < batch.rows; first += plan_.head_rows) {
    const int64_t n = std::min(plan_.head_rows, batch.rows - first);
    sum += head_rows_loss(first, n, target, d_scale, weights);
    head_backward(first, n, head_place, head_grads, first == 0, weights);
  }
  const EndWeights& e = weights.ends();
  const EndParams end_grads = end_params(layout, end.base);
  exec_.ops.norm_bwd({.d_x = d_stream_[0],
                      .d_w = end_grads.final_norm_w,
                      .d_b = end_grads.final_norm_b,
                      .d_y = d_final_norm_,
                      .x = x_final_,
                      .mean = final_mean_,
                      .rstd = final_rstd_,
                      .w = e.final_norm_w,
                      .rows = batch.rows,
                      .c = shape_.c,
                      .kind = shape_.norm,
                      .t = exec_.t,
                      .write = end.write},
                     exec_.stream);
  sink.done(layers + 1);
  between_blocks();
  int turn = 0;
  for (int64_t l = layers - 1; l >= 0; --l) {
    BlockActs a = acts_[static_cast<size_t>(l)];
    if (l == 0) a.x = x0_;
    grad_acts_.d_out = d_stream_[turn];
    grad_acts_.d_x = d_stream_[1 - turn];
    if (l > 0) weights.prefetch(l - 1);
    const BlockWeights& w = weights.acquire(l);
    block_bwd_input(w, a, grad_acts_, batch, shape_, rope_.get(), exec_);
    const GradPlace place = sink.open(l + 1);
    block_bwd_weight(w, a, grad_acts_, batch, block_params(layout, place.base, l), place.write, shape_, exec_);
    weights.release(l);
    sink.done(l + 1);
    between_blocks();
    turn = 1 - turn;
  }
  const EndParams grads = end_params(layout, start.base);
  if (start.write == Write::overwrite) {
    if (!tied)
      std::memset(grads.token_embedding, 0, sizeof(float) * static_cast<size_t>(plan_.spec.vocab_size * shape_.c));
    if (grads.position_embedding != nullptr)
      std::memset(grads.position_embedding, 0, sizeof(float) * static_cast<size_t>(plan_.spec.max_position * shape_.c));
  }
  exec_.ops.embedding_bwd({.d_table = grads.token_embedding,
                           .d_pos_table = grads.position_embedding,
                           .d_x = d_stream_[turn],
                           .id = ids,
                           .pos = batch.pos,
                           .rows = batch.rows,
                           .c = shape_.c,
                           .t = exec_.t},
                          exec_.stream);
  sink.done(0);
  return sum;
}

void Decoder::logits(const int32_t* rows, int64_t n, float* out, WeightSource& weights) {
  CHECK(n <= plan_.head_rows, "%lld rows of logits, planned for %lld", static_cast<long long>(n),
        static_cast<long long>(plan_.head_rows));
  const size_t bytes = static_cast<size_t>(shape_.c * dtype_bytes(exec_.t));
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(row(gathered_, i, shape_.c, exec_.t), row(final_norm_, rows[i], shape_.c, exec_.t), bytes);
  linear_fwd(logits_, gathered_, n, weights.ends().head, exec_);
  exec_.ops.cast({.y = out, .x = logits_, .n = n * plan_.spec.vocab_size, .yt = DType::f32, .xt = exec_.t},
                 exec_.stream);
}

ModelFlops training_flops_per_token(const ModelSpec& spec, int64_t seq_len) {
  const BlockShape s(spec);
  const auto product = [&](int64_t n, int64_t k) {
    return cost(Gemm{.c = nullptr, .a = nullptr, .m = seq_len, .n = n, .k = k, .t = DType::f32, .ct = DType::f32})
        .flops;
  };
  const double layer = product(s.qkv_n, s.c) + product(s.c, s.h * s.d) + product(s.u, s.c) + product(s.c, s.f);
  const double linear = static_cast<double>(spec.layers) * layer + product(spec.vocab_size, s.c);
  const int32_t one_sequence[2] = {0, static_cast<int32_t>(seq_len)};
  const double causal =
      static_cast<double>(spec.layers) *
      cost(AttentionFwd{
               .cu_seqlens = one_sequence, .n_seq = 1, .heads = s.h, .kv_heads = s.hkv, .d = s.d, .t = DType::f32})
          .flops;
  const double tokens = static_cast<double>(seq_len);
  return {.full = 3 * (linear + 2 * causal) / tokens, .causal = 3 * (linear + causal) / tokens};
}

}  // namespace rw
