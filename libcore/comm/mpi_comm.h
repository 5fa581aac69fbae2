// The communicator of processes on several nodes: the ranks of a node meet on their board, node leaders (the lowest
// rank of each) exchange messages.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/board.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/mpi_link.h"

namespace rw {

struct MpiCommConfig {
  std::shared_ptr<MpiLink> link;           // all ranks
  std::shared_ptr<MpiLink> mail;           // all ranks, for send and recv
  std::shared_ptr<MpiLink> leaders;        // the nodes' leaders in rank order; null on the other ranks
  std::unique_ptr<Board> node;             // null when the rank is alone on its node
  std::vector<int> leader_ranks;           // (nodes)
  std::vector<std::string> labels, hosts;  // (ranks)
  int node_color = 0;                      // see connect_ranks
};
std::unique_ptr<Comm> make_mpi_comm(MpiCommConfig config);

// Collective: the communicator of the link's ranks. Ranks of one host and one node_color share a board; where there is
// no shared memory every rank is a node of its own. SelfComm for one rank.
std::unique_ptr<Comm> connect_ranks(const std::shared_ptr<MpiLink>& link, int node_color);

}  // namespace rw
