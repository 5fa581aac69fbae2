#include "libcore/train/grad_sync.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

constexpr int64_t kFloat = sizeof(float);

bool is_norm(ParamRole role) {
  using R = ParamRole;
  return role == R::attn_norm_w || role == R::attn_norm_b || role == R::mlp_norm_w || role == R::mlp_norm_b ||
         role == R::final_norm_w || role == R::final_norm_b;
}

}  // namespace

GradSync::GradSync(const GradSyncPlan& plan, const ParamLayout& layout, const Shards& shards, Mesh& mesh,
                   const Exec& exec, Arena& arena)
    : plan_(plan),
      layout_(layout),
      shards_(shards),
      mesh_(mesh),
      exec_(exec),
      touched_(static_cast<size_t>(layout.n_groups())),
      reduced_(touched_.size()),
      done_(touched_.size()) {
  const int threads = exec.stream.threads;
  if (plan.zero < 2) {
    Comm& comm = plan.zero == 0 ? *mesh.replica : *mesh.shard;
    flat_ = take_shared(comm, arena,
                        {.bytes = layout.total() * kFloat, .owner = MemoryOwner::gradients, .threads = threads});
  } else {
    shard_grads_ = arena.take_n<float>(shards.shard_total(), MemoryOwner::gradients, threads);
    int64_t block = 0;
    for (const ParamGroup& g : layout.groups())
      if (g.kind == GroupKind::block) block = std::max(block, g.range.n);
    // Two for the blocks, in turn; one for each other group, which may stay open while blocks come and go.
    const auto lend = [&](int64_t n, int64_t group) {
      lent_.push_back(
          {.memory = take_shared(*mesh.shard, arena,
                                 {.bytes = n * kFloat, .owner = MemoryOwner::gradients, .threads = threads}),
           .group = group,
           .reducing = false,
           .request = {}});
    };
    lend(block, -1);
    lend(block, -1);
    for (int64_t g = 0; g < layout.n_groups(); ++g)
      if (layout.group(g).kind != GroupKind::block) lend(layout.group(g).range.n, g);
  }
  const bool kv_shared = mesh.kv->size() > 1;
  for (const ShardPiece& piece : shards.own_pieces()) {
    const LocalParam& p = layout.params()[piece.param];
    if (plan.sequence_parallel && is_norm(p.role)) over_tp_.pieces.push_back(piece), over_tp_.n += piece.n;
    if (kv_shared && tp_split(p.role) == TpSplit::kv_rows) over_kv_.pieces.push_back(piece), over_kv_.n += piece.n;
  }
  if (plan.sequence_parallel)
    over_tp_.buffer = take_shared(*mesh.tp, arena, {.bytes = over_tp_.n * kFloat, .owner = MemoryOwner::comm});
  if (kv_shared)
    over_kv_.buffer = take_shared(*mesh.kv, arena, {.bytes = over_kv_.n * kFloat, .owner = MemoryOwner::comm});
}

void GradSync::start(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  std::fill(touched_.begin(), touched_.end(), false);
  std::fill(reduced_.begin(), reduced_.end(), false);
  std::fill(done_.begin(), done_.end(), 0);
}

// Where this rank's slice of a group ends up.
float* GradSync::own(int64_t group) const {
  return sharded() ? shard_grads_ + shards_.shard_at(group) : flat_.floats() + shards_.own(group).offset;
}

GradSync::Lent& GradSync::lent_for(int64_t group) {
  for (Lent& l : lent_)
    if (l.group == group && !l.reducing &&
        (touched_[static_cast<size_t>(group)] || layout_.group(group).kind != GroupKind::block))
      return l;
  for (Lent& l : lent_)
    if (l.group == group && layout_.group(group).kind != GroupKind::block) {
      retire(l);
      return l;
    }
  Lent& l = lent_[static_cast<size_t>(next_lent_)];
  next_lent_ = 1 - next_lent_;
  if (l.reducing) retire(l);
  CHECK(l.group < 0, "gradients of group %lld were not finished before group %lld", static_cast<long long>(l.group),
        static_cast<long long>(group));
  l.group = group;
  return l;
}

GradPlace GradSync::open(int64_t group) {
  const auto g = static_cast<size_t>(group);
  float* base = sharded() ? lent_for(group).memory.floats() - layout_.group(group).range.offset : flat_.floats();
  const Write write = touched_[g] ? Write::accumulate : Write::overwrite;
  touched_[g] = true;
  return {.base = base, .write = write};
}

void GradSync::done(int64_t group) {
  const auto g = static_cast<size_t>(group);
  const bool last = ++done_[g] == micro_batches_;
  CHECK(done_[g] <= micro_batches_, "group %lld finished %lld times in a step of %lld micro-batches",
        static_cast<long long>(group), static_cast<long long>(done_[g]), static_cast<long long>(micro_batches_));
  const Range range = layout_.group(group).range;
  if (sharded()) {
    Lent& lent = lent_for(group);
    lent.request = mesh_.shard->reduce_scatter_start(lent.memory.data, shards_.cuts(group), DType::f32);
    lent.reducing = true;
    touched_[g] = false;
    return;
  }
  if (!last) return;
  float* data = flat_.floats() + range.offset;
  requests_.push_back(plan_.zero == 0 ? mesh_.replica->all_reduce_start(data, range.n, DType::f32, ReduceOp::sum)
                                      : mesh_.shard->reduce_scatter_start(data, shards_.cuts(group), DType::f32));
}

// Waits for a lent buffer's reduction and adds this rank's slice to its own gradients.
void GradSync::retire(Lent& lent) {
  if (!lent.reducing) return;
  mesh_.shard->wait(lent.request);
  lent.reducing = false;
  const int64_t group = lent.group;
  const auto g = static_cast<size_t>(group);
  const float* sum = lent.memory.floats() + shards_.own(group).offset - layout_.group(group).range.offset;
  const int64_t n = shards_.own(group).n;
  if (reduced_[g]) exec_.ops.add({.y = own(group), .a = own(group), .b = sum, .n = n, .t = DType::f32}, exec_.stream);
  else exec_.ops.cast({.y = own(group), .x = sum, .n = n, .yt = DType::f32, .xt = DType::f32}, exec_.stream);
  reduced_[g] = true;
  if (layout_.group(group).kind == GroupKind::block) lent.group = -1;
}

void GradSync::add_over(Packed& packed, Comm& comm) {
  int64_t at = 0;
  const auto each = [&](auto&& copy) {
    at = 0;
    for (const ShardPiece& p : packed.pieces) {
      copy(grads() + (sharded() ? p.shard_at : p.offset), packed.buffer.floats() + at, p.n);
      at += p.n;
    }
  };
  const auto copy = [&](float* to, const float* from, int64_t n) {
    exec_.ops.cast({.y = to, .x = from, .n = n, .yt = DType::f32, .xt = DType::f32}, exec_.stream);
  };
  each([&](float* grad, float* message, int64_t n) { copy(message, grad, n); });
  comm.all_reduce(packed.buffer.data, packed.n, DType::f32, ReduceOp::sum);
  each([&](float* grad, const float* message, int64_t n) { copy(grad, message, n); });
}

void GradSync::finish() {
  Comm& reducing = plan_.zero == 0 ? *mesh_.replica : *mesh_.shard;
  for (const Request& request : requests_) reducing.wait(request);
  requests_.clear();
  for (Lent& lent : lent_) retire(lent);
  for (int64_t g = 0; g < layout_.n_groups(); ++g)
    CHECK(done_[static_cast<size_t>(g)] == micro_batches_, "group %lld finished %lld of %lld micro-batches",
          static_cast<long long>(g), static_cast<long long>(done_[static_cast<size_t>(g)]),
          static_cast<long long>(micro_batches_));
  // Sharded sums over the replicas: the slices of one rank lie side by side in stages 2 and 3.
  if (plan_.zero == 1)
    for (int64_t g = 0; g < layout_.n_groups(); ++g)
      mesh_.replica->all_reduce(own(g), shards_.own(g).n, DType::f32, ReduceOp::sum);
  if (plan_.zero >= 2) mesh_.replica->all_reduce(shard_grads_, shards_.shard_total(), DType::f32, ReduceOp::sum);
  // A tied embedding: the head's share lies on the last stage, the embedding's on the first, cut alike.
  const int64_t tied = layout_.find_group(GroupKind::token_embedding);
  if (layout_.spec().tied_head && tied >= 0)
    mesh_.ends->all_reduce(own(tied), shards_.own(tied).n, DType::f32, ReduceOp::sum);
  if (plan_.sequence_parallel) add_over(over_tp_, *mesh_.tp);
  if (mesh_.kv->size() > 1) add_over(over_kv_, *mesh_.kv);
}

}  // namespace rw
