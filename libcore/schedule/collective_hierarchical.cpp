// Two levels: the ranks of a node sum in their shared memory (node_reduce), the L nodes' leaders sum over a ring, and
// the result goes back through shared memory (node_broadcast).
//
// The data is cut into pieces of L segments. While the leaders' ring runs over a piece, the node sums the next one; a
// node's ranks see R0, R1, B0, R2, B1, ... (R reduce, B broadcast), its leader the rings between: R0, R1, ring 0, B0,
// R2, ring 1, B1, ... Steps: 2 per piece, and the leader's 2(L-1) per piece. Bytes over the wires: 2(L-1)/L m out and
// in per node, whatever the number of its ranks, 2(L-1) messages one after another per piece.
#include "libcore/base/check.h"
#include "libcore/schedule/collective_algorithms.h"
#include "libcore/schedule/collective_ring.h"

namespace rw {

StepList hierarchical_steps(const AllReduceShape& shape, int rank) {
  CHECK(shape.nodes != nullptr && static_cast<int>(shape.nodes->node_of.size()) == shape.ranks,
        "hierarchical needs the node of each of %d ranks", shape.ranks);
  const NodeMap& nodes = *shape.nodes;
  const int leaders = static_cast<int>(nodes.leaders.size()), node = nodes.node_of[static_cast<size_t>(rank)];
  const auto leader = [&](int i) { return nodes.leaders[static_cast<size_t>((i + leaders) % leaders)]; };
  const ElementRange all{0, shape.n};
  const int64_t piece = shape.segment * leaders, pieces = segments_of(all, piece);
  StepList steps;
  for (int64_t i = 0; i < pieces; ++i) {
    if (i == 0) steps.push_back({.kind = StepKind::node_reduce, .receive = segment_of(all, piece, 0)});
    if (i + 1 < pieces) steps.push_back({.kind = StepKind::node_reduce, .receive = segment_of(all, piece, i + 1)});
    const ElementRange part = segment_of(all, piece, i);
    if (nodes.is_leader(rank)) {
      const std::vector<int64_t> cuts = equal_cuts(part.begin, part.n, leaders);
      const RingPlace ring{.place = node,
                           .size = leaders,
                           .next = leader(node + 1),
                           .previous = leader(node - 1),
                           .cuts = cuts,
                           .segment = shape.segment};
      append_ring_reduce_scatter(steps, ring);
      append_ring_all_gather(steps, ring);
    }
    steps.push_back({.kind = StepKind::node_broadcast, .receive = part});
  }
  return steps;
}

}  // namespace rw
