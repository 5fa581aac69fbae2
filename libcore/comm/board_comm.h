// The communicator of ranks that share a board: threads, or all processes of one node. What differs between the two is
// how memory becomes visible to all ranks and how groups are split off.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/board.h"
#include "libcore/comm/comm.h"

namespace rw {

class BoardHost {
 public:
  virtual ~BoardHost() = default;
  // Collective: a segment of `bytes` a rank, zeroed; null, on all ranks alike, when there is no memory for it.
  virtual std::shared_ptr<Segment> make_segment(Board& board, int64_t bytes, double timeout_s) = 0;
  virtual std::unique_ptr<Comm> split(Board& board, int color, int key, double timeout_s) = 0;
};

// What Comm::allocate returns for a segment that was made: it is entered in the board's table; for null a warning and
// private memory.
SharedBuffer adopt_segment(Board& board, const std::shared_ptr<Segment>& segment, int64_t bytes);

struct BoardCommConfig {
  std::unique_ptr<Board> board;
  std::unique_ptr<BoardHost> host;
  std::vector<std::string> hosts;  // (ranks)
  std::vector<Placement> places;   // (ranks)
};
std::unique_ptr<Comm> make_board_comm(BoardCommConfig config);

}  // namespace rw
