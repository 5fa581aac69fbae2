// The grid of ranks: as arithmetic on worlds of any size, and as communicators of thread ranks.
#include "libcore/comm/mesh.h"

#include <doctest/doctest.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "libcore/comm/watch.h"

using namespace rw;

namespace {

struct Kind {
  const char* name;
  RankGroup MeshPlace::*group;
};
constexpr Kind kKinds[] = {{"tp", &MeshPlace::tp_group},           {"dp", &MeshPlace::dp_group},
                           {"pp", &MeshPlace::pp_group},           {"shard", &MeshPlace::shard_group},
                           {"replica", &MeshPlace::replica_group}, {"kv", &MeshPlace::kv_group},
                           {"ends", &MeshPlace::ends_group}};

const MeshShape kLarge[] = {{.tp = 8, .dp = 16, .pp = 8, .shard = 16, .kv_share = 1},
                            {.tp = 8, .dp = 8, .pp = 16, .shard = 4, .kv_share = 2},
                            {.tp = 1, .dp = 1024, .pp = 1, .shard = 8, .kv_share = 1},
                            {.tp = 1024, .dp = 1, .pp = 1, .shard = 1, .kv_share = 128},
                            {.tp = 1, .dp = 1, .pp = 1024, .shard = 1, .kv_share = 1},
                            {.tp = 8, .dp = 128, .pp = 16, .shard = 32, .kv_share = 4},
                            {.tp = 16, .dp = 1024, .pp = 1, .shard = 1, .kv_share = 16},
                            {.tp = 8, .dp = 1, .pp = 2048, .shard = 1, .kv_share = 8},
                            {.tp = 3, .dp = 35, .pp = 11, .shard = 7, .kv_share = 3}};

std::vector<MeshPlace> places_of(const MeshShape& shape) {
  std::vector<MeshPlace> places;
  for (int64_t r = 0; r < shape.ranks(); ++r) places.emplace_back(shape, r);
  return places;
}

// Inside a thread rank a failed expectation ends it.
void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

const MeshShape kSmall[] = {{.tp = 1, .dp = 1, .pp = 1},
                            {.tp = 2, .dp = 2, .pp = 2, .shard = 2, .kv_share = 2},
                            {.tp = 2, .dp = 4, .pp = 1, .shard = 2},
                            {.tp = 1, .dp = 1, .pp = 3},
                            {.tp = 4, .dp = 1, .pp = 2, .kv_share = 2},
                            {.tp = 1, .dp = 3, .pp = 2, .shard = 3}};

std::vector<std::pair<Comm*, RankGroup>> comms_of(const Mesh& m) {
  const MeshPlace& p = m.place;
  return {{m.world.get(), {0, 1, m.shape.ranks()}}, {m.tp.get(), p.tp_group},          {m.dp.get(), p.dp_group},
          {m.pp_forward.get(), p.pp_group},         {m.pp_backward.get(), p.pp_group}, {m.shard.get(), p.shard_group},
          {m.replica.get(), p.replica_group},       {m.kv.get(), p.kv_group},          {m.ends.get(), p.ends_group}};
}

}  // namespace

TEST_CASE("coordinates: tensor parallel fastest, then data, then pipeline") {
  const MeshShape shape{.tp = 2, .dp = 3, .pp = 4};
  int64_t rank = 0;
  for (int64_t pp = 0; pp < 4; ++pp)
    for (int64_t dp = 0; dp < 3; ++dp)
      for (int64_t tp = 0; tp < 2; ++tp, ++rank) {
        const MeshPlace p(shape, rank);
        CHECK(p.rank == rank);
        CHECK(p.tp == tp);
        CHECK(p.dp == dp);
        CHECK(p.pp == pp);
      }
  CHECK(rank == shape.ranks());
}

TEST_CASE("the groups of one rank, by hand") {
  // tp 4, dp 6 in shards of 3, pp 3: rank 4 * (6 * 1 + 4) + 3.
  const MeshPlace p({.tp = 4, .dp = 6, .pp = 3, .shard = 3, .kv_share = 2}, 43);
  CHECK(p.tp_group == RankGroup{40, 1, 4});
  CHECK(p.dp_group == RankGroup{27, 4, 6});
  CHECK(p.pp_group == RankGroup{19, 24, 3});
  CHECK(p.shard_group == RankGroup{39, 4, 3});     // dp 3, 4, 5
  CHECK(p.replica_group == RankGroup{31, 12, 2});  // dp 1 and 4
  CHECK(p.kv_group == RankGroup{42, 1, 2});
  CHECK(p.ends_group == RankGroup{43, 1, 1});  // a middle stage
  CHECK(MeshPlace({.tp = 4, .dp = 6, .pp = 3}, 19).ends_group == RankGroup{19, 48, 2});
  CHECK(MeshPlace({.tp = 4, .dp = 6, .pp = 3}, 67).ends_group == RankGroup{19, 48, 2});
}

TEST_CASE("every rank is in one group of each kind, and its members agree, at 1,024 and 16,384 ranks") {
  for (const MeshShape& shape : kLarge) {
    const std::vector<MeshPlace> places = places_of(shape);
    const int64_t n = shape.ranks();
    CAPTURE(n);
    for (const Kind& kind : kKinds) {
      CAPTURE(kind.name);
      std::vector<int> seen(places.size(), 0);
      bool agree = true, inside = true;
      for (const MeshPlace& p : places) {
        const RankGroup& group = p.*kind.group;
        inside = inside && group.contains(p.rank) && group.rank(group.index(p.rank)) == p.rank;
        if (group.start != p.rank) continue;  // each group once, from its first member
        for (int64_t i = 0; i < group.size; ++i) {
          const int64_t member = group.rank(i);
          inside = inside && member >= 0 && member < n;
          if (!inside) break;
          ++seen[static_cast<size_t>(member)];
          agree = agree && places[static_cast<size_t>(member)].*kind.group == group;
        }
      }
      CHECK(inside);
      CHECK(agree);
      CHECK(std::vector<int>(places.size(), 1) == seen);
    }
  }
}

TEST_CASE("sizes multiply, and a rank's place in a group is its coordinate") {
  for (const MeshShape& shape : kLarge) {
    bool sizes = true, indices = true, crossing = true;
    for (const MeshPlace& p : places_of(shape)) {
      sizes = sizes && p.tp_group.size * p.dp_group.size * p.pp_group.size == shape.ranks() &&
              p.shard_group.size * p.replica_group.size == shape.dp && p.kv_group.size == shape.kv_share &&
              p.ends_group.size == (shape.pp > 1 && (p.pp == 0 || p.pp == shape.pp - 1) ? 2 : 1);
      indices = indices && p.tp_group.index(p.rank) == p.tp && p.dp_group.index(p.rank) == p.dp &&
                p.pp_group.index(p.rank) == p.pp && p.shard_group.index(p.rank) == p.dp % shape.shard &&
                p.replica_group.index(p.rank) == p.dp / shape.shard &&
                p.kv_group.index(p.rank) == p.tp % shape.kv_share;
      // A shard group and a replica group meet in one rank alone.
      for (int64_t i = 0; i < p.shard_group.size; ++i)
        if (const int64_t r = p.shard_group.rank(i); r != p.rank) crossing = crossing && !p.replica_group.contains(r);
    }
    CHECK(sizes);
    CHECK(indices);
    CHECK(crossing);
  }
}

TEST_CASE("shapes and ranks that are none") {
  CHECK_THROWS(MeshPlace({.tp = 2, .dp = 3, .pp = 1}, 6));
  CHECK_THROWS(MeshPlace({.tp = 2, .dp = 3, .pp = 1}, -1));
  CHECK_THROWS(MeshPlace({.tp = 1, .dp = 4, .pp = 1, .shard = 3}, 0));
  CHECK_THROWS(MeshPlace({.tp = 4, .dp = 1, .pp = 1, .kv_share = 3}, 0));
  CHECK_THROWS(make_mesh(*make_self_comm(), {.tp = 2}, nullptr));
}

TEST_CASE("sums over each group of thread ranks") {
  for (const MeshShape& shape : kSmall)
    run_thread_ranks(static_cast<int>(shape.ranks()), [&](Comm& world) {
      world.set_timeout(60);
      const Mesh mesh = make_mesh(world, shape, nullptr);
      for (const auto& [comm, group] : comms_of(mesh)) {
        expect(comm->size() == group.size, "a group's size");
        expect(comm->rank() == group.index(world.rank()), "a group's order");
        expect(comm->timeout_s() == 60, "the world's timeout");
        int64_t sum = 0;
        for (int64_t i = 0; i < group.size; ++i) sum += 1 + group.rank(i) * group.rank(i);
        const int64_t mine = 1 + int64_t{world.rank()} * world.rank();
        expect(comm->all_reduce_value(mine, ReduceOp::sum) == sum, "a group's sum");
      }
    });
}

TEST_CASE("activations and gradients pass between neighbouring stages without meeting") {
  const MeshShape shape{.tp = 2, .dp = 1, .pp = 3};
  run_thread_ranks(6, [&](Comm& world) {
    world.set_timeout(60);
    const Mesh mesh = make_mesh(world, shape, nullptr);
    const int stage = mesh.pp_forward->rank();
    // Gradients are sent first, activations received first: in one queue their tags would clash.
    const int64_t gradient = 100 + world.rank(), activation = 200 + world.rank();
    int64_t got = 0;
    std::vector<std::pair<Comm*, Request>> sent;
    if (stage > 0) sent.emplace_back(mesh.pp_backward.get(), mesh.pp_backward->send_start(&gradient, 8, stage - 1, 1));
    if (stage < 2) sent.emplace_back(mesh.pp_forward.get(), mesh.pp_forward->send_start(&activation, 8, stage + 1, 2));
    if (stage > 0) {
      mesh.pp_forward->recv(&got, 8, stage - 1, 2);
      expect(got == 200 + world.rank() - 2, "an activation of the stage before");
    }
    if (stage < 2) {
      mesh.pp_backward->recv(&got, 8, stage + 1, 1);
      expect(got == 100 + world.rank() + 2, "a gradient of the stage after");
    }
    for (auto& [comm, request] : sent) comm->wait(request);
  });
}

TEST_CASE("a record counts under the groups' names, on real and on imagined ranks alike") {
  const MeshShape shape{.tp = 2, .dp = 2, .pp = 2, .shard = 2, .kv_share = 2};
  const auto use_all = [](const Mesh& mesh) {
    for (const auto& [comm, group] : comms_of(mesh)) comm->all_reduce_value(int64_t{0}, ReduceOp::sum);
    mesh.shard->barrier();
  };
  std::vector<std::shared_ptr<CommRecord>> records(8);
  for (auto& r : records) r = std::make_shared<CommRecord>();
  run_thread_ranks(8, [&](Comm& world) {
    world.set_timeout(60);
    use_all(make_mesh(world, shape, records[static_cast<size_t>(world.rank())]));
  });
  for (int64_t rank = 0; rank < 8; ++rank) {
    const auto meta = std::make_shared<CommRecord>();
    const Mesh mesh = make_meta_mesh(shape, rank, meta);
    CHECK(mesh.world->size() == 8);
    CHECK(mesh.world->rank() == rank);
    use_all(mesh);
    CHECK(meta->counts == records[static_cast<size_t>(rank)]->counts);
    CHECK(meta->counts.at({"shard", CommKind::barrier}).calls == 1);
    for (const char* name : {"world", "tp", "dp", "pp_forward", "pp_backward", "shard", "replica", "kv", "ends"})
      if (const auto found = meta->counts.find({name, CommKind::all_reduce}); found != meta->counts.end())
        CHECK(found->second == CommCount{.calls = 1, .bytes = 8});  // groups of one rank communicate with nobody
  }
}

TEST_CASE("a rank of a world that no machine could hold") {
  const MeshShape shape{.tp = 8, .dp = 128, .pp = 16, .shard = 128};
  const Mesh mesh = make_meta_mesh(shape, 16383, nullptr);
  CHECK(mesh.tp->rank() == 7);
  CHECK(mesh.dp->rank() == 127);
  CHECK(mesh.pp_forward->size() == 16);
  CHECK(mesh.pp_backward->rank() == 15);
  CHECK(mesh.shard->size() == 128);
  CHECK(mesh.replica->size() == 1);
  CHECK(mesh.ends->rank() == 1);
}
