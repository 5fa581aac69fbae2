#include "libcore/comm/mesh.h"

#include <functional>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/comm/watch.h"

namespace rw {
namespace {

using Members = std::function<std::unique_ptr<Comm>(const RankGroup&)>;

void check_shape(const MeshShape& s) {
  CHECK(s.tp >= 1 && s.dp >= 1 && s.pp >= 1, "tp %lld, dp %lld, pp %lld", static_cast<long long>(s.tp),
        static_cast<long long>(s.dp), static_cast<long long>(s.pp));
  CHECK(s.shard >= 1 && s.dp % s.shard == 0, "%lld replicas in groups of %lld", static_cast<long long>(s.dp),
        static_cast<long long>(s.shard));
  CHECK(s.kv_share >= 1 && s.tp % s.kv_share == 0, "%lld tensor-parallel ranks in groups of %lld",
        static_cast<long long>(s.tp), static_cast<long long>(s.kv_share));
}

Mesh build(const MeshShape& shape, int64_t rank, const std::shared_ptr<CommRecord>& record, const Members& connect) {
  Mesh mesh{.shape = shape, .place = MeshPlace(shape, rank)};
  const auto make = [&](std::unique_ptr<Comm>& comm, const RankGroup& group, const char* name) {
    comm = connect(group);
    CHECK(comm->size() == group.size && comm->rank() == group.index(rank), "%s: rank %d of %d, expected %lld of %lld",
          name, comm->rank(), comm->size(), static_cast<long long>(group.index(rank)),
          static_cast<long long>(group.size));
    // A rank alone communicates with nobody.
    if (record != nullptr && group.size > 1) comm = watch(std::move(comm), name, record);
  };
  const MeshPlace& p = mesh.place;
  make(mesh.world, {.start = 0, .stride = 1, .size = shape.ranks()}, "world");
  make(mesh.tp, p.tp_group, "tp");
  make(mesh.dp, p.dp_group, "dp");
  make(mesh.pp_forward, p.pp_group, "pp_forward");
  make(mesh.pp_backward, p.pp_group, "pp_backward");
  make(mesh.shard, p.shard_group, "shard");
  make(mesh.replica, p.replica_group, "replica");
  make(mesh.kv, p.kv_group, "kv");
  make(mesh.ends, p.ends_group, "ends");
  return mesh;
}

}  // namespace

MeshPlace::MeshPlace(const MeshShape& s, int64_t rank_)
    : rank(rank_), tp(rank_ % s.tp), dp(rank_ / s.tp % s.dp), pp(rank_ / (s.tp * s.dp)) {
  check_shape(s);
  CHECK(rank >= 0 && rank < s.ranks(), "rank %lld of %lld", static_cast<long long>(rank),
        static_cast<long long>(s.ranks()));
  const int64_t stage_ranks = s.tp * s.dp;
  tp_group = {.start = rank - tp, .stride = 1, .size = s.tp};
  dp_group = {.start = rank - dp * s.tp, .stride = s.tp, .size = s.dp};
  pp_group = {.start = rank - pp * stage_ranks, .stride = stage_ranks, .size = s.pp};
  shard_group = {.start = dp_group.rank(dp / s.shard * s.shard), .stride = s.tp, .size = s.shard};
  replica_group = {.start = dp_group.rank(dp % s.shard), .stride = s.tp * s.shard, .size = s.dp / s.shard};
  kv_group = {.start = tp_group.rank(tp / s.kv_share * s.kv_share), .stride = 1, .size = s.kv_share};
  if (s.pp > 1 && (pp == 0 || pp == s.pp - 1))
    ends_group = {.start = pp_group.start, .stride = stage_ranks * (s.pp - 1), .size = 2};
  else ends_group = {.start = rank, .stride = 1, .size = 1};
}

Mesh make_mesh(Comm& world, const MeshShape& shape, const std::shared_ptr<CommRecord>& record) {
  CHECK(world.size() == shape.ranks(), "a mesh of %lld ranks in a world of %d", static_cast<long long>(shape.ranks()),
        world.size());
  // A group's lowest rank is its color: no two groups of a kind share it.
  return build(shape, world.rank(), record, [&](const RankGroup& group) {
    std::unique_ptr<Comm> comm = world.split(static_cast<int>(group.start), world.rank());
    comm->set_timeout(world.timeout_s());
    return comm;
  });
}

Mesh make_meta_mesh(const MeshShape& shape, int64_t rank, const std::shared_ptr<CommRecord>& record) {
  return build(shape, rank, record, [&](const RankGroup& group) {
    return make_meta_comm(static_cast<int>(group.index(rank)), static_cast<int>(group.size));
  });
}

}  // namespace rw
