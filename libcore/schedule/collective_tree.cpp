// Double binary tree (Sanders, Speck & Träff 2009): two trees over the ranks, each for half of the data. A rank that is
// inner in one is a leaf of the other, so sending and receiving are used alike on all ranks, where a single tree leaves
// half of the wires idle.
//
// Positions 0..p-1 of a tree: 0 is the root and has one child; 1..p-1 are an in-order tree: the odd positions are the
// leaves, position i with lowest set bit b has the children i - b/2 and i + b/2 (or the nearest to it that exists). The
// first tree has rank r at position r. The second is the first mirrored, r at p-1-r, when p is even; with an odd p the
// ends would meet, so it is shifted, r at r-1: rank 0 then has one child in each tree and no leaf's part.
//
//   up:   a rank adds its left child's segment before its own and its right child's behind it, then sends to its
//   parent. down: a rank receives the sum from its parent and sends it to its children.
//
// Steps: each of s segments of m/2 per tree costs a rank at most 2 messages out and 2 in on either way. Depth D = 1 +
// floor(log2(p-1)). Bytes: at most 2m out and 2m in per rank (the ring: 2(p-1)/p m), about 2 D + 4 s messages one after
// another instead of 2(p-1) s.
//
// Order: message times that all ranks compute alike. Segment i of tree t goes up from depth d, as child number c, at
// 8 (i + D - d) + 2t + c and down to depth d at 8 (i + D + d - 1) + 4 + 2t + c. At any time a rank sends at most one
// message and receives at most one; they form a step. The pending message with the least time can always proceed, so
// nothing deadlocks.
#include <algorithm>
#include <bit>

#include "libcore/schedule/collective_algorithms.h"
#include "libcore/schedule/collective_ring.h"

namespace rw {
namespace {

struct TreePlace {
  int parent = -1;
  int side = 0;  // which child of the parent: 0 left, 1 right
  int child[2] = {-1, -1};
  int depth = 0;
};

int parent_of(int i, int p) {
  const int bit = i & -i;
  const int up = (i ^ bit) | (bit << 1);
  return up < p ? up : i ^ bit;
}

TreePlace place_of(int i, int p) {
  TreePlace place;
  if (i == 0) {
    if (p > 1) place.child[1] = static_cast<int>(std::bit_floor(static_cast<unsigned>(p - 1)));
    return place;
  }
  place.parent = parent_of(i, p);
  place.side = i < place.parent ? 0 : 1;
  for (int above = i; above != 0; above = parent_of(above, p)) ++place.depth;
  int bit = (i & -i) / 2;
  if (bit > 0) place.child[0] = i - bit;
  while (bit > 0 && i + bit >= p) bit /= 2;
  if (bit > 0) place.child[1] = i + bit;
  return place;
}

struct TimedHalf {
  int64_t time;
  bool is_send;
  int32_t peer;
  ElementRange range;
  OnArrival arrival = OnArrival::copy;
};

// Both halves of a time make a step.
StepList in_order(std::vector<TimedHalf> halves) {
  std::sort(halves.begin(), halves.end(), [](const TimedHalf& a, const TimedHalf& b) { return a.time < b.time; });
  StepList steps;
  int64_t last = -1;
  for (const TimedHalf& h : halves) {
    if (h.time != last) steps.emplace_back();
    last = h.time;
    CollectiveStep& s = steps.back();
    if (h.is_send) s.to = h.peer, s.send = h.range;
    else s.from = h.peer, s.receive = h.range, s.arrival = h.arrival;
  }
  return steps;
}

class Tree {
 public:
  Tree(int ranks, int number)
      : p_(ranks),
        number_(number),
        depth_(ranks > 1 ? static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))) : 0) {}

  void append(std::vector<TimedHalf>& halves, const ElementRange& range, int64_t segment, int rank) const {
    const TreePlace me = place_of(position(rank), p_);
    for (int64_t i = 0; i < segments_of(range, segment); ++i) {
      const ElementRange part = segment_of(range, segment, i);
      if (me.parent >= 0) {
        halves.push_back({up(i, me.depth, me.side), true, rank_at(me.parent), part});
        halves.push_back({down(i, me.depth, me.side), false, rank_at(me.parent), part});
      }
      for (int c = 0; c < 2; ++c) {
        if (me.child[c] < 0) continue;
        halves.push_back({up(i, me.depth + 1, c), false, rank_at(me.child[c]), part,
                          c == 0 ? OnArrival::received_first : OnArrival::received_second});
        halves.push_back({down(i, me.depth + 1, c), true, rank_at(me.child[c]), part});
      }
    }
  }

 private:
  int position(int rank) const { return number_ == 0 ? rank : p_ % 2 == 0 ? p_ - 1 - rank : (rank + p_ - 1) % p_; }
  int rank_at(int position) const {
    return number_ == 0 ? position : p_ % 2 == 0 ? p_ - 1 - position : (position + 1) % p_;
  }
  int64_t up(int64_t i, int depth, int child) const { return 8 * (i + depth_ - depth) + 2 * number_ + child; }
  int64_t down(int64_t i, int depth, int child) const { return 8 * (i + depth_ + depth - 1) + 4 + 2 * number_ + child; }

  int p_, number_, depth_;
};

}  // namespace

StepList tree_steps(const AllReduceShape& shape, int rank) {
  std::vector<TimedHalf> halves;
  const ElementRange first{0, shape.n / 2}, second{shape.n / 2, shape.n - shape.n / 2};
  Tree(shape.ranks, 0).append(halves, first, shape.segment, rank);
  Tree(shape.ranks, 1).append(halves, second, shape.segment, rank);
  return in_order(std::move(halves));
}

}  // namespace rw
