#include "libcore/train/sharded_weights.h"

#include <algorithm>

#include "libcore/base/check.h"

namespace rw {
namespace {

constexpr int64_t kFloat = sizeof(float);

}  // namespace

ShardedWeights::ShardedWeights(const ParamLayout& layout, const Shards& shards, const float* masters, Comm& shard,
                               const Exec& exec, Arena& arena)
    : layout_(layout), shards_(shards), masters_(masters), shard_(shard), exec_(exec) {
  const auto take = [&](Lease& lease, int64_t n) {
    lease.full =
        take_shared(shard, arena, {.bytes = n * kFloat, .owner = MemoryOwner::weights, .threads = exec.stream.threads});
  };
  int64_t block = 0;
  for (const ParamGroup& g : layout.groups())
    if (g.kind == GroupKind::block) block = std::max(block, g.range.n);
  for (Lease& lease : blocks_) {
    take(lease, block);
    // All blocks have one shape: the first one's sizes plan the packed forms of each.
    lease.block = block_weights(
        layout, base_of({.full = lease.full, .group = layout.find_group(GroupKind::block, 0)}, layout), 0);
    for (PackedLinear* linear : lease.block.linears()) take_packed(*linear, WeightUse::training, exec, arena);
  }
  for (int64_t g = 0; g < layout.n_groups(); ++g) {
    if (layout.group(g).kind == GroupKind::block) continue;
    Lease& lease = ends_.emplace_back();
    take(lease, layout.group(g).range.n);
    lease.group = g;
  }
  if (layout.part().head) {
    head_packed_ = head_weights(layout, masters).head;
    take_packed(head_packed_, WeightUse::training, exec, arena);
  }
  forget();
}

float* ShardedWeights::base_of(const Lease& lease, const ParamLayout& layout) {
  return lease.full.floats() - layout.group(lease.group).range.offset;
}

void ShardedWeights::gather(Lease& lease, int64_t group) {
  lease.group = group;
  lease.fwd_packed = lease.bwd_packed = false;
  lease.request =
      shard_.all_gather_start(masters_ + shards_.shard_at(group), lease.full.data, shards_.cuts(group), DType::f32);
  lease.gathering = true;
}

void ShardedWeights::arrive(Lease& lease) {
  if (!lease.gathering) return;
  shard_.wait(lease.request);
  lease.gathering = false;
}

ShardedWeights::Lease* ShardedWeights::find(int64_t group) {
  for (Lease& lease : blocks_)
    if (lease.group == group) return &lease;
  return nullptr;
}

ShardedWeights::Lease& ShardedWeights::free_block_lease() {
  // The one that is not in use; of two free ones the first, as every rank decides alike.
  Lease& lease = blocks_[0].users == 0 ? blocks_[0] : blocks_[1];
  CHECK(lease.users == 0, "two blocks are in use and a third is asked for");
  arrive(lease);
  return lease;
}

void ShardedWeights::prefetch(int64_t layer) {
  const int64_t group = layout_.find_group(GroupKind::block, layer);
  if (find(group) == nullptr) gather(free_block_lease(), group);
}

const BlockWeights& ShardedWeights::acquire(int64_t layer, Pass pass) {
  const int64_t group = layout_.find_group(GroupKind::block, layer);
  Lease* lease = find(group);
  if (lease == nullptr) {
    lease = &free_block_lease();
    gather(*lease, group);
  }
  arrive(*lease);
  ++lease->users;
  BlockWeights now = block_weights(layout_, base_of(*lease, layout_), layer);
  const auto from = now.linears(), to = lease->block.linears();
  for (size_t i = 0; i < to.size(); ++i) {
    from[i]->fwd = to[i]->fwd;
    from[i]->bwd = to[i]->bwd;
  }
  lease->block = now;
  const bool bwd = pass != Pass::forward;
  const bool fwd = pass != Pass::backward || has_one_copy(*lease->block.linears()[0], exec_);
  for (const PackedLinear* linear : lease->block.linears()) {
    if (fwd && !lease->fwd_packed) pack_fwd(*linear, exec_);
    if (bwd && !lease->bwd_packed) pack_bwd(*linear, exec_);
  }
  lease->fwd_packed |= fwd;
  lease->bwd_packed |= bwd;
  return lease->block;
}

void ShardedWeights::release(int64_t layer) {
  Lease* lease = find(layout_.find_group(GroupKind::block, layer));
  CHECK(lease != nullptr && lease->users > 0, "block %lld is released and was not acquired",
        static_cast<long long>(layer));
  --lease->users;
}

ShardedWeights::Lease* ShardedWeights::end(GroupKind kind) {
  const int64_t group = layout_.find_group(kind);
  for (Lease& lease : ends_)
    if (lease.group == group) {
      if (!lease.fwd_packed) {  // of an end: gathered since the last forget()
        gather(lease, group);
        arrive(lease);
        lease.fwd_packed = true;
      }
      return &lease;
    }
  return nullptr;
}

const EmbeddingWeights& ShardedWeights::embedding() {
  Lease* token = end(GroupKind::token_embedding);
  Lease* position = end(GroupKind::position_embedding);
  embedding_ = embedding_weights(layout_, base_of(*token, layout_));
  embedding_.position =
      position == nullptr ? nullptr : end_params(layout_, base_of(*position, layout_)).position_embedding;
  return embedding_;
}

const HeadWeights& ShardedWeights::head() {
  Lease* norm = end(GroupKind::final_norm);
  const bool tied = layout_.tied_here();
  Lease* matrix = end(tied ? GroupKind::token_embedding : GroupKind::head);
  head_ = head_weights(layout_, base_of(*norm, layout_));
  head_.head.master = end_params(layout_, base_of(*matrix, layout_)).head_w;
  head_.head.fwd = head_packed_.fwd;
  head_.head.bwd = head_packed_.bwd;
  if (!matrix->bwd_packed) {
    pack_fwd(head_.head, exec_);
    pack_bwd(head_.head, exec_);
    matrix->bwd_packed = true;
  }
  return head_;
}

void ShardedWeights::forget() {
  for (Lease& lease : blocks_) {
    arrive(lease);
    CHECK(lease.users == 0, "weights change while a block is in use");
    lease.group = -1;
  }
  for (Lease& lease : ends_) lease.fwd_packed = lease.bwd_packed = false;
}

}  // namespace rw
