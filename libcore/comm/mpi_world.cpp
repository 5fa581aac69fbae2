// From the processes that a launcher started to a communicator: who shares a node, whether they can share memory.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/comm/board_comm.h"
#include "libcore/comm/host_name.h"
#include "libcore/comm/mpi_comm.h"
#include "libcore/comm/node_board.h"
#include "libcore/comm/steps_comm.h"

namespace rw {
namespace {

class NodeHost final : public BoardHost {
 public:
  NodeHost(std::shared_ptr<MpiLink> link, MpiSelf self) : link_(std::move(link)), self_(std::move(self)) {}
  std::shared_ptr<Segment> make_segment(Board& board, int64_t bytes, double timeout_s) override {
    return make_shm_segment(board, bytes, timeout_s);
  }
  std::unique_ptr<Comm> split(Board& board, int color, int key, double timeout_s) override {
    CHECK(color >= 0, "split color %d", color);
    board.run({}, timeout_s);  // a peer may still need this rank's steps, and MPI_Comm_split makes none
    auto comm = connect_ranks(link_->split(color, key), self_);
    comm->set_timeout(timeout_s);
    return comm;
  }

 private:
  std::shared_ptr<MpiLink> link_;
  MpiSelf self_;
};

std::vector<std::string> gather_hosts(MpiLink& link) {
  std::array<char, 256> mine{};
  std::strncpy(mine.data(), host_name().c_str(), mine.size() - 1);
  std::vector<std::array<char, 256>> all(static_cast<size_t>(link.size()));
  link.all_gather(mine.data(), all.data(), mine.size());
  std::vector<std::string> hosts;
  for (const auto& h : all) hosts.emplace_back(h.data());
  return hosts;
}

template <typename T>
std::vector<T> gather(MpiLink& link, T value) {
  std::vector<T> all(static_cast<size_t>(link.size()));
  link.all_gather(&value, all.data(), sizeof value);
  return all;
}

// Nodes are the hosts, or blocks of consecutive ranks within hosts, numbered by their lowest ranks.
Placement place_in_world(MpiLink& world, int ranks_per_node) {
  const int block = ranks_per_node == 0 ? 0 : world.rank() / ranks_per_node;
  const auto node = world.same_host()->split(block, world.rank());
  const std::vector<int> leader = gather(world, gather(*node, world.rank())[0]);
  const auto blocks = gather(world, block);
  for (size_t r = 1; r < blocks.size() && ranks_per_node > 0; ++r)
    if (blocks[r] == blocks[r - 1] && leader[r] != leader[r - 1])
      fail(ErrorKind::usage,
           "{} ranks per node: ranks {} and {} would count as one node and are on two hosts; start that many ranks on "
           "each host",
           ranks_per_node, r - 1, r);
  int number = 0;
  for (int r = 0; r < leader[static_cast<size_t>(world.rank())]; ++r) number += leader[static_cast<size_t>(r)] == r;
  return {.rank = world.rank(), .node = number};
}

}  // namespace

std::unique_ptr<Comm> connect_ranks(const std::shared_ptr<MpiLink>& link, const MpiSelf& self) {
  if (link->size() == 1) return make_self_comm(self.place);
  const Placement place = self.place;
  const std::vector<std::string> hosts = gather_hosts(*link);
  std::vector<std::string> labels, node_labels;
  const std::vector<Placement> places = gather(*link, place);
  for (const Placement& p : places) {
    labels.push_back(fmt::format("rank {} on host {}", p.rank, hosts[labels.size()]));
    if (p.node == place.node) node_labels.push_back(labels.back());
  }
  const auto node = link->split(place.node, link->rank());
  std::unique_ptr<Board> board;
  const bool one_node = node->size() == link->size();
  if (node->size() > 1) {
    board = make_node_board({.node = node, .labels = node_labels, .group = one_node ? "mpi/shm" : "mpi"});
    if (!board && node->rank() == 0)
      log_warning(
          "no shared memory for the {} ranks on host {} (is /dev/shm too small?); they go on with MPI messages, "
          "which is slower",
          node->size(), hosts[static_cast<size_t>(link->rank())]);
  }
  // Who leads each rank's board: ranks without one lead themselves.
  const auto leaders = gather(*link, board ? gather(*node, link->rank())[0] : link->rank());
  StepsCommConfig steps{.direct = nullptr,
                        .board = board.get(),
                        .link = self.all_reduce ? link->duplicate() : nullptr,
                        .labels = labels,
                        .nodes = map_nodes(leaders),
                        .policy = self.all_reduce};
  if (one_node && board) {
    steps.direct = make_board_comm(
        {.board = std::move(board), .host = std::make_unique<NodeHost>(link, self), .hosts = hosts, .places = places});
  } else {
    const bool leads = leaders[static_cast<size_t>(link->rank())] == link->rank();
    MpiCommConfig config{.link = link,
                         .mail = link->duplicate(),
                         .leaders = link->split(leads ? 0 : -1, link->rank()),
                         .board = std::move(board),
                         .labels = labels,
                         .hosts = hosts,
                         .places = places,
                         .self = self};
    for (int l = 0; l < link->size(); ++l) {
      if (leaders[static_cast<size_t>(l)] != l) continue;
      config.of_node.emplace_back();
      for (int r = l; r < link->size(); ++r)
        if (leaders[static_cast<size_t>(r)] == l) config.of_node.back().push_back(r);
    }
    steps.direct = make_mpi_comm(std::move(config));
  }
  if (!self.all_reduce) return std::move(steps.direct);
  return make_steps_comm(std::move(steps));
}

std::unique_ptr<Comm> make_world_comm(const WorldOptions& options) {
  CHECK(options.ranks_per_node >= 0, "%d ranks per node", options.ranks_per_node);
  if (!under_launcher()) return make_self_comm();
  const auto world = MpiLink::world();
  return connect_ranks(world,
                       {.place = place_in_world(*world, options.ranks_per_node), .all_reduce = options.all_reduce});
}

void abort_world(int exit_code) {
  std::fflush(nullptr);
  abort_if_initialized(exit_code);
  std::_Exit(exit_code);
}

}  // namespace rw
