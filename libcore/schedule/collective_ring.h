// A ring as seen by one of its members; rings of all ranks and of the nodes' leaders are made of it.
#pragma once
#include "libcore/schedule/collective.h"

namespace rw {

struct RingPlace {
  int place = 0, size = 1;         // of this member
  int32_t next = 0, previous = 0;  // ranks
  std::span<const int64_t> cuts;   // (size + 1) chunk c is [cuts[c], cuts[c+1])
  int64_t segment = 1;
};
// Chunk `place` holds the members' sum afterwards.
void append_ring_reduce_scatter(StepList& steps, const RingPlace& ring);
// Chunk `place` is there before, all are afterwards.
void append_ring_all_gather(StepList& steps, const RingPlace& ring);

// [0, n) in `parts` parts, as equal as can be: cut c is n * c / parts.
std::vector<int64_t> equal_cuts(int64_t begin, int64_t n, int64_t parts);

// How a range is cut into segments, and the i-th of them.
int64_t segments_of(const ElementRange& range, int64_t segment);
ElementRange segment_of(const ElementRange& range, int64_t segment, int64_t i);

}  // namespace rw
