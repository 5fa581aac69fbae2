// The weights of a rank in training, for every ZeRO stage: f32 masters (all of its part of the model, or in stage 3 its
// slices), and the source that blocks lease them from.
#pragma once
#include <memory>

#include "libcore/comm/mesh.h"
#include "libcore/train/sharded_weights.h"

namespace rw {

class WeightStore {
 public:
  WeightStore(int64_t zero, const ParamLayout& layout, const Shards& shards, Mesh& mesh, const Exec& exec,
              Arena& arena);
  WeightSource& source();
  bool sharded() const { return sharded_ != nullptr; }
  // (layout.total()), or (shards.shard_total()) when sharded.
  float* masters() { return masters_.floats(); }
  float* at(const ShardPiece& p) { return masters() + (sharded() ? p.shard_at : p.offset); }
  // masters() were written from outside, all that this rank keeps.
  void loaded();
  // Collective over the shard group: this rank's own pieces were updated; every rank gets what it needs of the others'.
  void updated();

 private:
  int64_t zero_;
  const ParamLayout& layout_;
  const Shards& shards_;
  Comm& shard_;
  Exec exec_;
  SharedMemory masters_;
  std::unique_ptr<ResidentWeights> resident_;
  std::unique_ptr<ShardedWeights> sharded_;
};

}  // namespace rw
