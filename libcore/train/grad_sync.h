// Gradients over data-parallel ranks, for every ZeRO stage (Rajbhandari et al. 2020). Stages 0 and 1 add micro-batches
// up in a flat buffer and start reducing a group as soon as its last micro-batch is through, while backward goes on;
// stages 2 and 3 keep only this rank's slices: a group's gradients are made in a lent buffer and reduced micro-batch by
// micro-batch.
//
// Groups: `shard` shares one set of gradients, `replica` are the copies of it (all of data parallelism without ZeRO,
// the nodes with --zero-group node). After finish() the sums over all of them, over tensor-parallel ranks where each
// has seen only its part (norms under sequence parallelism, shared key/value heads), and over both ends of a pipeline
// for a tied embedding, lie where grads() says.
#pragma once
#include <vector>

#include "libcore/comm/mesh.h"
#include "libcore/comm/take_shared.h"
#include "libcore/model/exec.h"
#include "libcore/model/grads.h"
#include "libcore/train/shards.h"

namespace rw {

struct GradSyncPlan {
  int64_t zero = 0;
  bool sequence_parallel = false;
};

class GradSync final : public GradSink {
 public:
  GradSync(const GradSyncPlan& plan, const ParamLayout& layout, const Shards& shards, Mesh& mesh, const Exec& exec,
           Arena& arena);
  // Before a step: how many times done() will be called for each group.
  void start(int64_t micro_batches);
  GradPlace open(int64_t group) override;
  void done(int64_t group) override;
  void finish();

  // The reduced gradient of own_pieces(): at base + offset (stages 0, 1) or base + shard_at (2, 3).
  float* grads() const { return plan_.zero >= 2 ? shard_grads_ : flat_.floats(); }
  bool sharded() const { return plan_.zero >= 2; }
  const float* at(const ShardPiece& p) const { return grads() + (sharded() ? p.shard_at : p.offset); }

 private:
  // A lent buffer of stages 2 and 3.
  struct Lent {
    SharedMemory memory;
    int64_t group = -1;     // whose gradients lie in it
    bool reducing = false;  // and are on their way
    Request request;
  };
  // Parts of parameters whose sums over a few tensor-parallel ranks are formed in one message.
  struct Packed {
    std::vector<ShardPiece> pieces;
    SharedMemory buffer;
    int64_t n = 0;
  };

  float* own(int64_t group) const;
  Lent& lent_for(int64_t group);
  void retire(Lent& lent);
  void add_over(Packed& packed, Comm& comm);

  GradSyncPlan plan_;
  const ParamLayout& layout_;
  const Shards& shards_;
  Mesh& mesh_;
  Exec exec_;
  SharedMemory flat_;             // stages 0, 1: (layout.total())
  float* shard_grads_ = nullptr;  // stages 2, 3: (shards.shard_total())
  std::vector<Lent> lent_;
  std::vector<bool> touched_, reduced_;  // by group: opened since the last reduction; has a sum from this step
  std::vector<int64_t> done_;            // by group: micro-batches through
  int64_t micro_batches_ = 1, next_lent_ = 0;
  std::vector<Request> requests_;
  Packed over_tp_, over_kv_;
};

}  // namespace rw
