// The gradient's global L2 norm, every parameter counted once across tensor, pipeline and data parallelism. Sums of
// squares are taken in f64 over fixed row blocks and added in table order, so that the bits do not depend on the ZeRO
// stage.
#pragma once
#include <memory>
#include <vector>

#include "libcore/comm/mesh.h"
#include "libcore/train/grad_sync.h"

namespace rw {

class GradNorm {
 public:
  // `shards`: of the gradients, `zero` the stage. Without ZeRO the blocks are cut as ZeRO would cut them over all
  // data-parallel ranks.
  GradNorm(int64_t zero, const ParamLayout& layout, const Shards& shards, Mesh& mesh, Arena& arena);
  double operator()(const GradSync& grads, const Exec& exec);

 private:
  struct Block {
    ShardPiece piece;  // what this rank computes
    int64_t first;     // of its partial sums, in table order over all ranks
  };
  Mesh& mesh_;
  Shards cut_;  // as the blocks are cut
  bool alone_;  // this rank has the whole gradient of its part of the model
  std::vector<Block> blocks_;
  SharedMemory partials_;  // (n_partials_) f64
  int64_t n_partials_ = 0;
  std::vector<double> host_;
};

}  // namespace rw
