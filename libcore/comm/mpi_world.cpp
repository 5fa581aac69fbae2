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

namespace rw {
namespace {

class NodeHost final : public BoardHost {
 public:
  NodeHost(std::shared_ptr<MpiLink> link, int node_color) : link_(std::move(link)), node_color_(node_color) {}
  std::shared_ptr<Segment> make_segment(Board& board, int64_t bytes, double timeout_s) override {
    return make_shm_segment(board, bytes, timeout_s);
  }
  std::unique_ptr<Comm> split(Board& board, int color, int key, double timeout_s) override {
    CHECK(color >= 0, "split color %d", color);
    board.run({}, timeout_s);  // a peer may still need this rank's steps, and MPI_Comm_split makes none
    auto comm = connect_ranks(link_->split(color, key), node_color_);
    comm->set_timeout(timeout_s);
    return comm;
  }

 private:
  std::shared_ptr<MpiLink> link_;
  int node_color_;
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

// Tests of the path between nodes on one machine: the ranks count as that many nodes, in blocks.
int pretended_node(const MpiLink& world) {
  const char* text = std::getenv("RANKWRIGHT_PRETEND_NODES");
  if (!text) return 0;
  const int nodes = std::atoi(text);
  if (nodes < 1 || nodes > world.size())
    fail(ErrorKind::usage, "RANKWRIGHT_PRETEND_NODES={}: expected a number from 1 to the {} ranks", text, world.size());
  return static_cast<int>(static_cast<int64_t>(world.rank()) * nodes / world.size());
}

}  // namespace

std::unique_ptr<Comm> connect_ranks(const std::shared_ptr<MpiLink>& link, int node_color) {
  if (link->size() == 1) return make_self_comm();
  const std::vector<std::string> hosts = gather_hosts(*link);
  auto label = [&](int r) { return "rank " + std::to_string(r) + " on host " + hosts[static_cast<size_t>(r)]; };

  auto node = link->same_host()->split(node_color, link->rank());
  std::vector<std::string> node_labels;
  for (int r : gather(*node, link->rank())) node_labels.push_back(label(r));
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
  if (one_node && board)
    return make_board_comm(
        {.board = std::move(board), .host = std::make_unique<NodeHost>(link, node_color), .hosts = hosts});

  MpiCommConfig config;
  const bool leader = !board || board->rank() == 0;
  config.link = link;
  config.mail = link->duplicate();
  config.leaders = link->split(leader ? 0 : -1, link->rank());
  config.node = std::move(board);
  const auto leaders = gather<int>(*link, leader);
  for (int r = 0; r < link->size(); ++r) {
    if (leaders[static_cast<size_t>(r)]) config.leader_ranks.push_back(r);
    config.labels.push_back(label(r));
  }
  config.hosts = hosts;
  config.node_color = node_color;
  return make_mpi_comm(std::move(config));
}

std::unique_ptr<Comm> make_world_comm() {
  if (!under_launcher()) return make_self_comm();
  const auto world = MpiLink::world();
  return connect_ranks(world, pretended_node(*world));
}

void abort_world(int exit_code) {
  std::fflush(nullptr);
  abort_if_initialized(exit_code);
  std::_Exit(exit_code);
}

}  // namespace rw
