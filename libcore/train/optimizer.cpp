#include "libcore/train/optimizer.h"

namespace rw {

Optimizer::Optimizer(const ParamLayout& layout, const Shards& shards, const AdamSettings& settings, Arena& arena,
                     int threads)
    : layout_(layout),
      shards_(shards),
      settings_(settings),
      m_(arena.take_n<float>(shards.shard_total(), MemoryOwner::optimizer, threads)),
      v_(arena.take_n<float>(shards.shard_total(), MemoryOwner::optimizer, threads)) {}

void Optimizer::step(WeightStore& weights, const GradSync& grads, const Step& step, const Exec& exec) {
  ++steps_;
  for (const ShardPiece& piece : shards_.own_pieces())
    exec.ops.adamw({.p = weights.at(piece),
                    .m = m_ + piece.shard_at,
                    .v = v_ + piece.shard_at,
                    .g = grads.at(piece),
                    .n = piece.n,
                    .lr = static_cast<float>(step.lr),
                    .beta1 = settings_.beta1,
                    .beta2 = settings_.beta2,
                    .eps = settings_.eps,
                    .weight_decay = layout_.params()[piece.param].decay ? settings_.weight_decay : 0.0f,
                    .grad_scale = static_cast<float>(step.grad_scale),
                    .step = steps_},
                   exec.stream);
}

double clip_scale(double grad_norm, double clip_norm) {
  return clip_norm > 0 && grad_norm > clip_norm ? clip_norm / (grad_norm + 1e-6) : 1.0;
}

}  // namespace rw
