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

// What a process takes along into every group.
struct MpiSelf {
  Placement place;
  std::shared_ptr<const AllReducePolicy> all_reduce;  // may be null
};

struct MpiCommConfig {
  std::shared_ptr<MpiLink> link;           // all ranks
  std::shared_ptr<MpiLink> mail;           // all ranks, for messages
  std::shared_ptr<MpiLink> leaders;        // the nodes' leaders in rank order; null on the other ranks
  std::unique_ptr<Board> board;            // null when the rank is alone on its node
  std::vector<std::vector<int>> of_node;   // (nodes) the ranks of each, ascending; nodes in the order of their leaders
  std::vector<std::string> labels, hosts;  // (ranks)
  std::vector<Placement> places;           // (ranks)
  MpiSelf self;
};
std::unique_ptr<Comm> make_mpi_comm(MpiCommConfig config);

// Collective: the communicator of the link's ranks. Ranks of one node share a board; where there is no shared memory
// every rank is a node of its own. SelfComm for one rank.
std::unique_ptr<Comm> connect_ranks(const std::shared_ptr<MpiLink>& link, const MpiSelf& self);

}  // namespace rw
