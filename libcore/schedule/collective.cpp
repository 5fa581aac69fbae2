#include "libcore/schedule/collective.h"

#include <map>

#include "libcore/base/check.h"
#include "libcore/schedule/collective_algorithms.h"
#include "libcore/schedule/collective_ring.h"

namespace rw {

const char* algorithm_name(CollectiveAlgorithm a) {
  switch (a) {
    case CollectiveAlgorithm::ring: return "ring";
    case CollectiveAlgorithm::tree: return "tree";
    case CollectiveAlgorithm::hierarchical: return "hierarchical";
    case CollectiveAlgorithm::doubling: return "doubling";
  }
  return "?";
}

bool starts_after(const CollectiveStep& later, const CollectiveStep& earlier) {
  if (later.send.touches(earlier.receive)) return true;
  const bool overwrites = later.kind != StepKind::exchange || later.arrival == OnArrival::copy;
  return overwrites && adds_after(later, earlier);
}

bool adds_after(const CollectiveStep& later, const CollectiveStep& earlier) {
  return later.receive.touches(earlier.receive) || later.receive.touches(earlier.send);
}

NodeMap map_nodes(std::span<const int32_t> label_of) {
  NodeMap map;
  std::map<int32_t, int32_t> number;  // by label
  for (size_t r = 0; r < label_of.size(); ++r) {
    const auto [it, is_new] = number.emplace(label_of[r], static_cast<int32_t>(map.leaders.size()));
    if (is_new) map.leaders.push_back(static_cast<int32_t>(r));
    map.node_of.push_back(it->second);
  }
  return map;
}

NodeMap even_nodes(int ranks, int ranks_per_node) {
  CHECK(ranks >= 1 && ranks_per_node >= 1, "%d ranks, %d a node", ranks, ranks_per_node);
  std::vector<int32_t> label_of(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) label_of[static_cast<size_t>(r)] = r / ranks_per_node;
  return map_nodes(label_of);
}

StepList all_reduce_steps(const AllReduceShape& shape, int rank) {
  CHECK(shape.ranks >= 1 && rank >= 0 && rank < shape.ranks && shape.n >= 0 && shape.segment > 0,
        "all_reduce: rank %d of %d, %lld elements", rank, shape.ranks, static_cast<long long>(shape.n));
  if (shape.ranks == 1 || shape.n == 0) return {};
  switch (shape.algorithm) {
    case CollectiveAlgorithm::tree: return tree_steps(shape, rank);
    case CollectiveAlgorithm::hierarchical: return hierarchical_steps(shape, rank);
    case CollectiveAlgorithm::doubling: return doubling_steps(shape, rank);
    case CollectiveAlgorithm::ring: break;
  }
  const std::vector<int64_t> cuts = equal_cuts(0, shape.n, shape.ranks);
  const PartsShape parts{.cuts = cuts, .segment = shape.segment};
  StepList steps = reduce_scatter_steps(parts, rank);
  const StepList gather = all_gather_steps(parts, rank);
  steps.insert(steps.end(), gather.begin(), gather.end());
  return steps;
}

StepTotals totals(const StepList& steps) {
  StepTotals t;
  t.steps = static_cast<int64_t>(steps.size());
  for (const CollectiveStep& s : steps) {
    if (s.kind != StepKind::exchange) continue;
    t.sent += s.send.n;
    t.received += s.receive.n;
    t.messages_sent += s.to >= 0;
    t.messages_received += s.from >= 0;
  }
  return t;
}

}  // namespace rw
