// The board of the processes of one node, and the memory they share.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/board_comm.h"
#include "libcore/comm/mpi_link.h"

namespace rw {

struct NodeBoardConfig {
  std::shared_ptr<MpiLink> node;    // the ranks of this node
  std::vector<std::string> labels;  // (ranks of the node)
  std::string group;
};
// Collective over the node; null, on all its ranks alike, when there is no shared memory for it.
std::unique_ptr<Board> make_node_board(const NodeBoardConfig& config);

// Collective over the board: a segment in shared memory; null, on all ranks alike, when there is none left.
std::shared_ptr<Segment> make_shm_segment(Board& board, int64_t bytes, double timeout_s);

}  // namespace rw
