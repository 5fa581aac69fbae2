#include "libcore/model/stage.h"

#include <algorithm>
#include <utility>

#include "kernels/op_log.h"
#include "libcore/base/check.h"

namespace rw {

// Takes the blocks of activations of one element type.
class Stage::Taker {
 public:
  Taker(Arena& arena, const Exec& exec, int64_t rows, int64_t local_rows)
      : arena_(arena), exec_(exec), rows_(rows), local_(local_rows) {}
  void* full(int64_t width) { return bytes(rows_ * width * dtype_bytes(exec_.t)); }
  void* local(int64_t width) { return bytes(local_ * width * dtype_bytes(exec_.t)); }
  float* full_floats(int64_t n) { return static_cast<float*>(bytes(rows_ * n * int64_t{sizeof(float)})); }
  float* local_floats() { return static_cast<float*>(bytes(local_ * int64_t{sizeof(float)})); }

 private:
  void* bytes(int64_t n) { return arena_.take(n, MemoryOwner::activations, exec_.stream.threads); }
  Arena& arena_;
  const Exec& exec_;
  int64_t rows_, local_;
};

Recompute Stage::recompute_of(int64_t local_layer) const {
  return local_layer < plan_.recompute_layers ? plan_.recompute : Recompute::none;
}

// x: where the block's input is kept; `shared` has what recomputed layers make again.
BlockActs Stage::take_acts(Taker& take, int64_t local_layer, void* x, const BlockActs& shared) const {
  const BlockShape& s = shape_;
  const Recompute recompute = recompute_of(local_layer);
  if (recompute == Recompute::full) {
    BlockActs a = shared;
    a.x = x;
    return a;
  }
  BlockActs a{};
  a.x = x;
  a.attn_norm = take.local(s.c);
  a.attn_rstd = take.local_floats();
  a.mlp_rstd = take.local_floats();
  if (s.norm == NormKind::layer) a.attn_mean = take.local_floats(), a.mlp_mean = take.local_floats();
  a.qkv = take.full(s.qkv_n);
  const bool again = recompute == Recompute::selective;
  a.attn = again ? shared.attn : take.full(s.h * s.d);
  a.lse = again ? shared.lse : take.full_floats(s.h);
  a.mid = take.local(s.c);
  a.mlp_norm = take.local(s.c);
  a.up = take.full(s.u);
  a.act = take.full(s.f);
  return a;
}

Stage::Stage(const StagePlan& plan, const Exec& exec, const TensorParallel& tp, Arena& arena,
             std::function<void()> between_blocks)
    : plan_(plan),
      shape_(plan.layout->spec(), tp.place().size),
      exec_(exec),
      tp_(tp),
      between_blocks_(std::move(between_blocks)) {
  const ModelSpec& spec = plan.layout->spec();
  const ModelPart& part = plan.layout->part();
  const VocabRange vocab = vocab_range(spec, tp.place());
  int64_t workspace = block_workspace_bytes(plan.max_rows, plan.max_seqs, shape_, exec_);
  if (part.head)
    workspace =
        std::max(workspace, linear_workspace_bytes(std::clamp<int64_t>(plan.head_rows, 1, plan.max_rows),
                                                   {.n_out = vocab.end - vocab.begin, .n_in = spec.width}, exec_));
  exec_.workspace = arena.take(workspace, MemoryOwner::workspace, exec.stream.threads);
  if (!spec.learned_position()) rope_ = std::make_unique<RopeTable>(spec, plan.max_position, exec_, arena);

  const BlockShape& s = shape_;
  Taker take(arena, exec_, plan.max_rows, tp.max_local_rows());
  // What recomputed layers make again, one set for all of them.
  BlockActs shared{};
  const Recompute recompute = plan.recompute_layers > 0 ? plan.recompute : Recompute::none;
  if (recompute != Recompute::none) {
    shared.attn = take.full(s.h * s.d);
    shared.lse = take.full_floats(s.h);
  }
  if (recompute == Recompute::full) {
    shared.attn_norm = take.local(s.c);
    shared.attn_rstd = take.local_floats();
    shared.mlp_rstd = take.local_floats();
    if (s.norm == NormKind::layer) shared.attn_mean = take.local_floats(), shared.mlp_mean = take.local_floats();
    shared.qkv = take.full(s.qkv_n);
    shared.mid = take.local(s.c);
    shared.mlp_norm = take.local(s.c);
    shared.up = take.full(s.u);
    shared.act = take.full(s.f);
  }
  for (int i = 0; i < 2; ++i) d_stream_[i] = take.local(s.c);
  if (s.gated) grad_acts_.d_act = take.full(s.f);
  grad_acts_.d_up = take.full(s.u);
  grad_acts_.d_mid = take.local(s.c);
  grad_acts_.d_attn = take.full(s.h * s.d);
  grad_acts_.d_qkv = take.full(s.qkv_n);

  CHECK(plan.chunks.size() == plan.live.size(), "%zu chunks, %zu of them planned", plan.chunks.size(),
        plan.live.size());
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    Chunk chunk{.layers = plan.chunks[c], .slots = {}, .weight_slots = {}};
    for (int i = 0; i < std::max(1, plan.live[c].activations); ++i) {
      Slot slot;
      slot.input = take.local(s.c);
      slot.output = take.local(s.c);
      for (int64_t l = chunk.layers.begin; l < chunk.layers.end; ++l)
        slot.layers.push_back(take_acts(take, l, l == chunk.layers.begin ? slot.input : take.local(s.c), shared));
      if (!first_of_model(static_cast<int64_t>(c))) slot.d_input = take.local(s.c);
      chunk.slots.push_back(std::move(slot));
    }
    for (int i = 0; plan.split_backward && i < std::max(1, plan.live[c].weight_gradients); ++i) {
      WeightSlot w;
      w.d_out = take.local(s.c);
      for (int64_t l = chunk.layers.begin; l < chunk.layers.end; ++l) {
        BlockGradActs g = grad_acts_;
        if (recompute_of(l) == Recompute::none) {
          g.d_up = take.full(s.u);
          g.keep_mlp_norm = take.local(s.c);
          g.d_mid = take.local(s.c);
          g.d_qkv = take.full(s.qkv_n);
          g.keep_attn_norm = take.local(s.c);
        }
        g.d_x = take.local(s.c);
        w.layers.push_back(g);
      }
      chunk.weight_slots.push_back(std::move(w));
    }
    chunks_.push_back(std::move(chunk));
  }
  if (part.head)
    head_ = std::make_unique<Head>(Head::Plan{.max_rows = plan.max_rows,
                                              .width = spec.width,
                                              .vocab = vocab.end - vocab.begin,
                                              .chunk_rows = plan.head_rows,
                                              .training = true,
                                              .kept_batches = plan.kept_losses},
                                   shape_.norm, exec_, tp, arena);
}

int64_t Stage::stream_bytes(int64_t rows) const { return tp_.local(rows).rows * shape_.c * dtype_bytes(exec_.t); }
void* Stage::input(At at) { return slot(at).input; }
void* Stage::output(At at) { return slot(at).output; }
void* Stage::d_input(At at) { return slot(at).d_input; }

Stage::WeightSlot& Stage::weight_slot(At at) {
  Chunk& c = chunk(at);
  return c.weight_slots[static_cast<size_t>(at.micro_batch) % c.weight_slots.size()];
}

void Stage::scope(int64_t local_layer, const char* pass) const {
  if (exec_.stream.log == nullptr) return;
  const auto layer = static_cast<long long>(plan_.layout->part().layers[static_cast<size_t>(local_layer)]);
  exec_.stream.log->scope = "block " + std::to_string(layer) + " (" + pass + ")";
}

void Stage::embed(At at, const Batch& batch, WeightSource& weights) {
  CHECK(batch.attn.rows <= plan_.max_rows, "%lld rows, planned for %lld", static_cast<long long>(batch.attn.rows),
        static_cast<long long>(plan_.max_rows));
  if (exec_.stream.log != nullptr) exec_.stream.log->scope = "embedding (forward)";
  embed_fwd(weights.embedding(), {.ids = batch.ids, .batch = batch.attn, .x = slot(at).input}, context());
}

void Stage::forward(At at, const Batch& batch, WeightSource& weights) {
  const Layout::Layers layers = chunk(at).layers;
  Slot& s = slot(at);
  const void *x = s.input, *branch = nullptr;
  for (int64_t l = layers.begin; l < layers.end; ++l) {
    BlockActs& a = s.layers[static_cast<size_t>(l - layers.begin)];
    a.x_in = x;
    a.branch_in = branch;
    scope(l, "forward");
    const BlockWeights& w = weights.acquire(l, Pass::forward);
    if (l + 1 < layers.end) weights.prefetch(l + 1);
    block_fwd(w, a, batch.attn, context());
    weights.release(l);
    x = a.mid;
    branch = a.branch;
    between_blocks_();
  }
  scope(layers.end - 1, "output");
  exec_.ops.add({.y = s.output, .a = x, .b = branch, .n = tp_.local(batch.attn.rows).rows * shape_.c, .t = exec_.t},
                exec_.stream);
}

double Stage::loss(At at, const Batch& batch, WeightSource& weights) {
  if (exec_.stream.log != nullptr) exec_.stream.log->scope = "head (forward)";
  head_->loss(weights.head(), slot(at).output, batch.target, batch.attn.rows, context());
  return take_loss();
}

void Stage::head_backward(At at, const Batch& batch, float d_scale, const Sinks& to) {
  if (exec_.stream.log != nullptr) exec_.stream.log->scope = "head";
  void* d_x = plan_.split_backward ? weight_slot(at).d_out : d_stream_[0];
  head_->loss_and_backward(
      to.weights.head(),
      {.x = slot(at).output, .target = batch.target, .rows = batch.attn.rows, .d_scale = d_scale, .d_x = d_x},
      *plan_.layout, to.grads, context());
  between_blocks_();
}

double Stage::take_loss() { return head_ != nullptr ? head_->take_loss(exec_) : 0.0; }

void Stage::layer_weights(const BlockActs& a, int64_t layer, const BlockGradActs& g, const Batch& batch,
                          const Sinks& to) {
  scope(layer, "weight gradients");
  const int64_t group = plan_.layout->find_group(GroupKind::block, layer);
  const GradPlace place = to.grads.open(group);
  const BlockParams grads = block_params(*plan_.layout, place.base, layer);
  block_bwd_weight(a, g, batch.attn.rows, {.d = grads, .write = place.write}, context());
  to.grads.done(group);
}

void Stage::layer_backward(At at, int64_t layer, BlockGradActs& g, const Batch& batch, const Sinks& to) {
  const Layout::Layers layers = chunk(at).layers;
  const BlockActs& a = slot(at).layers[static_cast<size_t>(layer - layers.begin)];
  const Recompute recompute = recompute_of(layer);
  scope(layer, "backward");
  const BlockWeights& w =
      to.weights.acquire(layer, recompute == Recompute::full ? Pass::backward_recomputed : Pass::backward);
  if (layer > layers.begin) to.weights.prefetch(layer - 1);
  if (recompute != Recompute::none) scope(layer, "recompute");
  if (recompute == Recompute::full) block_recompute(w, a, batch.attn, context());
  if (recompute == Recompute::selective) block_attention(a, batch.attn, context());
  scope(layer, "backward");
  block_bwd_input(w, a, g, batch.attn, context());
  if (g.keep_mlp_norm == nullptr) layer_weights(a, layer, g, batch, to);
  to.weights.release(layer);
  between_blocks_();
}

void Stage::backward(At at, const Batch& batch, const Sinks& to) {
  const Layout::Layers layers = chunk(at).layers;
  Slot& s = slot(at);
  const bool split = plan_.split_backward;
  const void* d_out = !last_of_model(at.chunk) ? s.output : split ? weight_slot(at).d_out : d_stream_[0];
  int turn = 1;
  for (int64_t l = layers.end - 1; l >= layers.begin; --l) {
    BlockGradActs& g = split ? weight_slot(at).layers[static_cast<size_t>(l - layers.begin)] : grad_acts_;
    g.d_out = d_out;
    if (!split) g.d_x = d_stream_[turn];
    void* own_d_x = g.d_x;
    if (l == layers.begin && s.d_input != nullptr) g.d_x = s.d_input;
    layer_backward(at, l, g, batch, to);
    d_out = g.d_x;
    g.d_x = own_d_x;
    turn = 1 - turn;
  }
  if (!first_of_model(at.chunk)) return;
  if (exec_.stream.log != nullptr) exec_.stream.log->scope = "embedding (backward)";
  embed_bwd(to.weights.embedding(), {.ids = batch.ids, .batch = batch.attn, .d_x = d_out}, *plan_.layout, to.grads,
            context());
}

void Stage::backward_weight(At at, const Batch& batch, const Sinks& to) {
  const Layout::Layers layers = chunk(at).layers;
  for (int64_t l = layers.end - 1; l >= layers.begin; --l) {
    const BlockGradActs& g = weight_slot(at).layers[static_cast<size_t>(l - layers.begin)];
    if (g.keep_mlp_norm == nullptr) continue;  // recomputed: done with its input half
    layer_weights(slot(at).layers[static_cast<size_t>(l - layers.begin)], l, g, batch, to);
    between_blocks_();
  }
}

}  // namespace rw
