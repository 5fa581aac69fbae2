// Memory that all ranks of a board can reach: a part a rank, all of one size. A pointer into one's own part is known by
// (segment, offset), which every peer can turn into an address of its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "libcore/comm/comm.h"

namespace rw {

struct Segment {
  std::vector<std::byte*> parts;  // (ranks) address, here, of each rank's part
  int64_t bytes = 0;              // of one part
  std::shared_ptr<void> memory;   // what the parts point into
};

// Zeroed memory of this process, aligned to 64 bytes.
std::shared_ptr<std::byte> heap_bytes(int64_t bytes);
SharedBuffer allocate_private(int64_t bytes);

struct Place {
  std::shared_ptr<Segment> segment;
  uint32_t id = 0;  // of the segment in the table, from 1
  int64_t offset = 0;
};

// The segments of one board, numbered in the order in which they were made (the same on all ranks). The table does not
// keep them alive: a buffer's owner and the requests under way do.
class SegmentTable {
 public:
  void add(const std::shared_ptr<Segment>& segment);
  // Where [data, data + bytes) lies in `rank`'s parts; nothing when it is memory of another kind.
  std::optional<Place> find(const void* data, int64_t bytes, int rank) const;
  int64_t bytes() const;                                // of one rank's parts that are alive
  std::shared_ptr<Segment> segment(uint32_t id) const;  // null when it was released here

 private:
  struct Known {
    uint32_t id;
    std::weak_ptr<Segment> segment;
  };
  std::vector<Known> known_;
  uint32_t n_made_ = 0;
};

}  // namespace rw
