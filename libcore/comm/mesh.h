// The grid of ranks: tensor parallel fastest, then data, then pipeline. Its groups are arithmetic (start, stride,
// size), so that a mesh of any size costs nothing to describe.
#pragma once
#include <cstdint>
#include <memory>

#include "libcore/comm/comm.h"

namespace rw {

// Ranks start, start + stride, ..., size of them.
struct RankGroup {
  int64_t start = 0, stride = 1, size = 1;
  int64_t rank(int64_t i) const { return start + i * stride; }
  int64_t index(int64_t r) const { return (r - start) / stride; }  // of a rank that it contains
  bool contains(int64_t r) const { return r >= start && (r - start) % stride == 0 && index(r) < size; }
  bool operator==(const RankGroup&) const = default;
};

struct MeshShape {
  int64_t tp = 1, dp = 1, pp = 1;
  int64_t shard = 1;  // data-parallel neighbours that share parameters, gradients or optimizer state (ZeRO); divides dp
  int64_t kv_share = 1;  // tensor-parallel neighbours that hold the same key/value head; divides tp
  int64_t ranks() const { return tp * dp * pp; }
};

// Where a rank stands, and its groups; in each its place is its coordinate in that direction.
struct MeshPlace {
  MeshPlace(const MeshShape& shape, int64_t rank);
  int64_t rank, tp, dp, pp;  // coordinates
  RankGroup tp_group, dp_group, pp_group;
  RankGroup shard_group;    // dp indices [i * shard, (i + 1) * shard)
  RankGroup replica_group;  // same place in every shard group
  RankGroup kv_group;       // tp indices that share a key/value head
  RankGroup ends_group;     // first and last stage of this pipeline (tied embeddings); this rank alone in the others
};

// The communicators of a rank. pp has two channels, so that activations and their gradients never wait in one queue.
struct Mesh {
  MeshShape shape;
  MeshPlace place;
  std::unique_ptr<Comm> world, tp, dp, pp_forward, pp_backward, shard, replica, kv, ends;
};

struct CommRecord;
// Collective over world, whose size is shape.ranks(). Every communicator is watched (watch.h) under its name when a
// record is given.
Mesh make_mesh(Comm& world, const MeshShape& shape, const std::shared_ptr<CommRecord>& record);
// The same groups for one rank of a world that does not exist: collectives do nothing and are counted.
Mesh make_meta_mesh(const MeshShape& shape, int64_t rank, const std::shared_ptr<CommRecord>& record);

}  // namespace rw
