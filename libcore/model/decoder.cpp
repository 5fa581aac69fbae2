#include "libcore/model/decoder.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {

Decoder::Decoder(const DecoderPlan& plan, const Exec& exec, Arena& arena)
    : plan_(plan),
      shape_(plan.spec, plan.tp != nullptr ? plan.tp->size() : 1),
      exec_(exec),
      self_(plan.tp != nullptr ? nullptr : make_self_comm()) {
  Comm& tp = plan.tp != nullptr ? *plan.tp : *self_;
  const VocabRange vocab = vocab_range(plan.spec, {.size = tp.size(), .rank = tp.rank()});
  const BlockShape& s = shape_;
  const int threads = exec.stream.threads;
  const int64_t rows = plan.max_rows, element = dtype_bytes(exec.t);
  tp_ = std::make_unique<TensorParallel>(
      TensorParallel::Plan{.max_rows = rows, .width = plan.spec.width, .training = false}, exec_, tp, arena);
  const PackedLinear like{.format = plan.quant.format, .group = plan.quant.group};
  PackedLinear head = like;
  head.n_out = vocab.end - vocab.begin;
  head.n_in = s.c;
  const int64_t blocks = plan.paged ? paged_block_workspace_bytes(rows, like, s, exec_)
                                    : block_workspace_bytes(rows, plan.max_seqs, s, exec_);
  const int64_t workspace = std::max(blocks, linear_fwd_workspace_bytes(plan.logit_rows, head, exec_));
  exec_.workspace = arena.take(workspace, MemoryOwner::workspace, threads);
  if (!plan.spec.learned_position()) rope_ = std::make_unique<RopeTable>(plan.spec, plan.max_position, exec_, arena);
  const auto take = [&](int64_t width) {
    return arena.take(rows * width * element, MemoryOwner::activations, threads);
  };
  const auto floats = [&](int64_t n) { return arena.take_n<float>(rows * n, MemoryOwner::activations, threads); };
  x0_ = take(s.c);
  result_ = take(s.c);
  acts_.x = take(s.c);
  acts_.attn_norm = take(s.c);
  acts_.attn_rstd = floats(1);
  acts_.mlp_rstd = floats(1);
  if (s.norm == NormKind::layer) acts_.attn_mean = floats(1), acts_.mlp_mean = floats(1);
  acts_.qkv = take(s.qkv_n);
  acts_.attn = take(s.h * s.d);
  acts_.lse = floats(s.h);
  acts_.mid = take(s.c);
  acts_.mlp_norm = take(s.c);
  acts_.up = take(s.u);
  acts_.act = s.gated ? take(s.f) : acts_.up;
  head_ = std::make_unique<Head>(Head::Plan{.max_rows = rows,
                                            .width = s.c,
                                            .vocab = vocab.end - vocab.begin,
                                            .chunk_rows = plan.logit_rows,
                                            .training = false},
                                 s.norm, exec_, *tp_, arena);
}

void Decoder::run(const int32_t* ids, const AttnBatch& batch, const LayerPages* pages, WeightSource& weights) {
  CHECK(batch.rows <= plan_.max_rows, "%lld rows, planned for %lld", static_cast<long long>(batch.rows),
        static_cast<long long>(plan_.max_rows));
  rows_ = batch.rows;
  embed_fwd(weights.embedding(), {.ids = ids, .batch = batch, .x = x0_}, context());
  const void *x = x0_, *branch = nullptr;
  for (int64_t l = 0; l < plan_.spec.layers; ++l) {
    BlockActs a = acts_;
    a.x_in = x;
    a.branch_in = branch;
    if (l == 0) a.x = x0_;
    AttnBatch layer_batch = batch;
    PagedKv paged{};
    if (pages != nullptr) {
      paged = (*pages)(l);
      layer_batch.paged = &paged;
    }
    if (l + 1 < plan_.spec.layers) weights.prefetch(l + 1);
    block_fwd(weights.acquire(l, Pass::forward), a, layer_batch, context());
    weights.release(l);
    x = a.mid;
    branch = a.branch;
  }
  exec_.ops.add({.y = result_, .a = x, .b = branch, .n = rows_ * shape_.c, .t = exec_.t}, exec_.stream);
}

void Decoder::forward_paged(const int32_t* ids, const AttnBatch& batch, const LayerPages& pages,
                            WeightSource& weights) {
  run(ids, batch, &pages, weights);
}

void Decoder::forward(const int32_t* ids, const AttnBatch& batch, WeightSource& weights) {
  CHECK(!plan_.paged, "a decoder planned for pages is asked for %lld rows without", static_cast<long long>(batch.rows));
  run(ids, batch, nullptr, weights);
}

void Decoder::logits(const int32_t* rows, int64_t n, float* out, WeightSource& weights) {
  head_->logits(weights.head(), {.x = result_, .chosen = rows, .n = n}, out, context());
}

}  // namespace rw
