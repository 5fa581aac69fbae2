// Weights under ZeRO-3 (Rajbhandari et al. 2020): each rank keeps its slices; a block's are gathered when it is
// acquired, the next one's while it computes, and its memory serves another block after release. Embeddings, final norm
// and head have buffers of their own, gathered once a step.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "libcore/comm/take_shared.h"
#include "libcore/model/weights.h"
#include "libcore/train/shards.h"

namespace rw {

class ShardedWeights final : public WeightSource {
 public:
  // masters: this rank's slices, (shards.shard_total()).
  ShardedWeights(const ParamLayout& layout, const Shards& shards, const float* masters, Comm& shard, const Exec& exec,
                 Arena& arena);
  void prefetch(int64_t layer) override;
  const BlockWeights& acquire(int64_t layer, Pass pass) override;
  void release(int64_t layer) override;
  const EmbeddingWeights& embedding() override;
  const HeadWeights& head() override;
  // The masters have changed: nothing gathered so far is worth anything.
  void forget();

 private:
  struct Lease {
    SharedMemory full;  // (group's elements)
    int64_t group = -1;
    bool gathering = false, fwd_packed = false, bwd_packed = false;
    int users = 0;
    Request request;
    BlockWeights block;  // of the two block leases
  };

  void gather(Lease& lease, int64_t group);
  void arrive(Lease& lease);
  Lease* find(int64_t group);
  Lease& free_block_lease();
  // The lease of an end's group, gathered; null when this rank has no such group.
  Lease* end(GroupKind kind);
  // Of the layout's flat buffer, were it whole: so that offset + base of the lease's group is its memory.
  static float* base_of(const Lease& lease, const ParamLayout& layout);

  const ParamLayout& layout_;
  const Shards& shards_;
  const float* masters_;
  Comm& shard_;
  Exec exec_;
  std::array<Lease, 2> blocks_;
  std::vector<Lease> ends_;
  EmbeddingWeights embedding_{};
  HeadWeights head_{};
  PackedLinear head_packed_;
};

}  // namespace rw
