#include "libcore/train/grad_norm.h"

#include <cmath>

namespace rw {
namespace {

constexpr int64_t kBlock = 65536;  // elements

int64_t n_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

}  // namespace

GradNorm::GradNorm(int64_t zero, const ParamLayout& layout, const Shards& shards, Mesh& mesh, Arena& arena)
    : mesh_(mesh),
      // Sharded gradients lie as `shards` cuts them, even into one piece.
      cut_(layout, zero == 0 ? mesh.dp->size() : shards.ranks(), zero == 0 ? mesh.dp->rank() : shards.rank()),
      alone_(shards.ranks() == 1) {
  for (int64_t g = 0; g < layout.n_groups(); ++g)
    for (int r = 0; r < cut_.ranks(); ++r)
      for (const ShardPiece& piece : cut_.pieces(g, r)) {
        if (!layout.params()[piece.param].owned) continue;
        if (alone_ || r == cut_.rank()) blocks_.push_back({.piece = piece, .first = n_partials_});
        n_partials_ += n_blocks(piece.n);
      }
  partials_ = take_shared(*mesh.shard, arena,
                          {.bytes = n_partials_ * static_cast<int64_t>(sizeof(double)), .owner = MemoryOwner::comm});
  host_.resize(static_cast<size_t>(n_partials_));
}

double GradNorm::operator()(const GradSync& grads, const Exec& exec) {
  double* partials = static_cast<double*>(partials_.data);
  exec.ops.zero({.y = partials, .bytes = n_partials_ * static_cast<int64_t>(sizeof(double))}, exec.stream);
  for (const Block& b : blocks_)
    exec.ops.sum_squares({.partial = partials + b.first, .x = grads.at(b.piece), .n = b.piece.n, .block = kBlock},
                         exec.stream);
  // Each partial sum is one rank's and zero on all others.
  mesh_.shard->all_reduce(partials, n_partials_, DType::f64, ReduceOp::sum);
  exec.ops.read({.host = host_.data(), .device = partials, .n = n_partials_, .t = DType::f64}, exec.stream);
  double sum = 0;
  for (const double part : host_) sum += part;
  sum = mesh_.tp->all_reduce_value(sum, ReduceOp::sum);
  sum = mesh_.pp_backward->all_reduce_value(sum, ReduceOp::sum);
  return std::sqrt(sum);
}

}  // namespace rw
