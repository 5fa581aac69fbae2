#include "libcore/train/weight_store.h"

#include <vector>

namespace rw {

WeightStore::WeightStore(int64_t zero, const ParamLayout& layout, const Shards& shards, Mesh& mesh, const Exec& exec,
                         Arena& arena)
    : zero_(zero), layout_(layout), shards_(shards), shard_(*mesh.shard), exec_(exec) {
  const int64_t n = zero == 3 ? shards.shard_total() : layout.total();
  const int64_t bytes = n * static_cast<int64_t>(sizeof(float));
  if (zero == 3) {
    masters_.data = arena.take(bytes, MemoryOwner::weights, exec.stream.threads);
    sharded_ = std::make_unique<ShardedWeights>(layout, shards, masters(), shard_, exec, arena);
    return;
  }
  masters_ =
      take_shared(shard_, arena, {.bytes = bytes, .owner = MemoryOwner::weights, .threads = exec.stream.threads});
  resident_ = std::make_unique<ResidentWeights>(layout, masters(), WeightUse::training, exec, arena);
}

WeightSource& WeightStore::source() {
  if (sharded_) return *sharded_;
  return *resident_;
}

void WeightStore::loaded() {
  if (sharded_) sharded_->forget();
  else resident_->refresh(exec_);
}

void WeightStore::updated() {
  if (sharded_) {
    sharded_->forget();
    return;
  }
  if (zero_ == 0) {
    resident_->refresh(exec_);
    return;
  }
  std::vector<Request> requests;
  for (int64_t g = 0; g < layout_.n_groups(); ++g)
    requests.push_back(shard_.all_gather_start(masters() + shards_.own(g).offset,
                                               masters() + layout_.group(g).range.offset, shards_.cuts(g), DType::f32));
  // Packing a group goes on while the next ones arrive.
  for (int64_t g = 0; g < layout_.n_groups(); ++g) {
    shard_.wait(requests[static_cast<size_t>(g)]);
    if (layout_.group(g).kind == GroupKind::block) resident_->refresh_block(layout_.group(g).layer, exec_);
  }
  if (layout_.part().head) resident_->refresh_head(exec_);
}

}  // namespace rw
