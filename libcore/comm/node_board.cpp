#include "libcore/comm/node_board.h"

#include <algorithm>

#include "libcore/comm/shm.h"

namespace rw {

std::unique_ptr<Board> make_node_board(const NodeBoardConfig& c) {
  const int ranks = c.node->size();
  const int64_t share = page_up((BoardMemory::bytes(ranks) + ranks - 1) / ranks);
  auto memory = make_shared_memory(
      {.rank = c.node->rank(),
       .ranks = ranks,
       .bytes_per_rank = share,
       .exchange = [&](const void* mine, void* all, int64_t bytes) { c.node->all_gather(mine, all, bytes); }});
  if (!memory) return nullptr;
  BoardConfig config{.rank = c.node->rank(),
                     .labels = c.labels,
                     .group = c.group,
                     .ranks_are_processes = true,
                     .may_spin = ranks_fit_cores(ranks)};
  return std::make_unique<Board>(BoardMemory(memory, ranks), std::move(config));
}

std::shared_ptr<Segment> make_shm_segment(Board& board, int64_t bytes, double timeout_s) {
  const int64_t stride = page_up(std::max<int64_t>(bytes, 1));
  auto memory = make_shared_memory(
      {.rank = board.rank(),
       .ranks = board.size(),
       .bytes_per_rank = stride,
       .exchange = [&](const void* mine, void* all, int64_t n) { board.exchange(mine, all, n, timeout_s); }});
  if (!memory) return nullptr;
  auto segment = std::make_shared<Segment>();
  for (int r = 0; r < board.size(); ++r) segment->parts.push_back(memory.get() + r * stride);
  segment->bytes = bytes;
  segment->memory = memory;
  return segment;
}

}  // namespace rw
