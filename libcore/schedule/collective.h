// Collective algorithms as data: what each rank sends, receives and adds, in order. Pure: no data, no clock, no
// communication. comm executes the lists (steps_run.h), the planner prices them (price_steps), check_steps proves them.
//
// Nomenclature: n elements, m bytes, p ranks; a message of b bytes costs alpha + b * beta (Hockney 1994). A chunk is
// what one rank owns of the data, a segment is what one message carries: chunks are cut into segments so that adding
// and passing on one segment goes on while the next is on its way.
//
// What a list means: the steps are done one after another. The two halves of a step, what is sent and what is received,
// proceed together; neither waits in a buffer for the peer to come (rendezvous). The messages from one rank to another
// are received in the order in which they are sent. Every list here completes under these strict terms, so it also
// completes for an executor that runs ahead where ranges do not touch.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace rw {

struct ElementRange {
  int64_t begin = 0, n = 0;
  int64_t end() const { return begin + n; }
  bool touches(const ElementRange& o) const { return n > 0 && o.n > 0 && begin < o.end() && o.begin < end(); }
  bool operator==(const ElementRange&) const = default;
};

// node_reduce: the ranks of a node (NodeMap) sum `receive` in rank order; their leader then holds the sum, the others'
// range is scratch. node_broadcast: `receive` of the leader goes to the others. Both are collective over the node.
enum class StepKind : uint8_t { exchange, node_reduce, node_broadcast };
// What becomes of received elements. A sum names its operands in order, so that every rank that holds it computed the
// same bits: received_first is data = received + data, received_second is data = data + received.
enum class OnArrival : uint8_t { copy, received_first, received_second };

struct CollectiveStep {
  StepKind kind = StepKind::exchange;
  OnArrival arrival = OnArrival::copy;
  int32_t to = -1, from = -1;  // ranks; -1: the step has no such half
  ElementRange send, receive;  // may touch when received elements are added: what is sent is the value before
  bool operator==(const CollectiveStep&) const = default;
};
using StepList = std::vector<CollectiveStep>;

// How far an executor may run ahead of a list, and not see it from the result. Steps start in the order of the list, up
// to kStepsAhead at a time.
constexpr int kStepsAhead = 8;
// `later` may not start before `earlier` is done: it sends what that one still writes, or overwrites at once what that
// one reads or writes. Elements to be added wait apart from the data, so they may arrive at any time;
bool starts_after(const CollectiveStep& later, const CollectiveStep& earlier);
// they are added only when no earlier step reads or writes their range any more.
bool adds_after(const CollectiveStep& later, const CollectiveStep& earlier);

// Which ranks share a node. Nodes are numbered in the order of their lowest ranks, their leaders.
struct NodeMap {
  std::vector<int32_t> node_of;  // (ranks)
  std::vector<int32_t> leaders;  // (nodes)
  bool is_leader(int rank) const { return leaders[static_cast<size_t>(node_of[static_cast<size_t>(rank)])] == rank; }
};
NodeMap map_nodes(
    std::span<const int32_t> label_of);             // (ranks) any number that ranks of one node, and only they, share
NodeMap even_nodes(int ranks, int ranks_per_node);  // neighbours share a node; the last may have fewer

enum class CollectiveAlgorithm : uint8_t {
  ring,          // collective_ring.cpp: the fewest bytes, 2(p-1) messages one after another
  tree,          // collective_tree.cpp: two trees with half the data each, 2 log2 p deep, pipelined
  hierarchical,  // collective_hierarchical.cpp: within the nodes, then a ring between their leaders
  doubling,      // collective_doubling.cpp: log2 p messages of all the data, for small sizes
};
constexpr CollectiveAlgorithm kCollectiveAlgorithms[] = {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
                                                         CollectiveAlgorithm::hierarchical,
                                                         CollectiveAlgorithm::doubling};
const char* algorithm_name(CollectiveAlgorithm a);  // "ring", "tree", "hierarchical", "doubling"

struct AllReduceShape {
  CollectiveAlgorithm algorithm = CollectiveAlgorithm::ring;
  int ranks = 1;
  int64_t n = 0;                   // elements
  int64_t segment = 1 << 16;       // elements of a message, at most
  const NodeMap* nodes = nullptr;  // hierarchical needs it
};
// What `rank` does; takes time and memory in proportion to the steps it returns (hierarchical: plus ranks). One rank
// has nothing to do.
StepList all_reduce_steps(const AllReduceShape& shape, int rank);

// Over parts: rank r owns [cuts[r], cuts[r+1]); any cuts, empty parts too. Both are rings.
struct PartsShape {
  std::span<const int64_t> cuts;  // (ranks + 1) ascending
  int64_t segment = 1 << 16;
  int ranks() const { return static_cast<int>(cuts.size()) - 1; }
};
// Afterwards this rank's part holds the sum; the rest of the data is scratch.
StepList reduce_scatter_steps(const PartsShape& shape, int rank);
// This rank's part lies at its place before; afterwards all parts do.
StepList all_gather_steps(const PartsShape& shape, int rank);

struct StepTotals {
  int64_t steps = 0, sent = 0, received = 0;  // steps; elements
  int64_t messages_sent = 0, messages_received = 0;
};
StepTotals totals(const StepList& steps);

// ---- proof ----------------------------------------------------------------------------------------------------------

enum class CollectiveKind : uint8_t { all_reduce, reduce_scatter, all_gather };
struct CollectiveGoal {
  CollectiveKind kind = CollectiveKind::all_reduce;
  std::span<const int64_t> cuts;   // (ranks + 1); all_reduce: only the last, n, counts
  const NodeMap* nodes = nullptr;  // for node steps
};
// Runs all ranks' lists against each other under the strict terms above, with symbols for data: "" when they complete,
// no element is read before it is there, every sum holds every rank's contribution exactly once, and all ranks end with
// sums formed in the same order (equal bits); otherwise what is wrong and where.
std::string check_steps(const CollectiveGoal& goal, const std::vector<StepList>& of_rank);

// ---- price ----------------------------------------------------------------------------------------------------------

struct WireCost {
  double alpha_s = 0;     // of a message
  double s_per_byte = 0;  // beta
};
struct PriceTerms {
  double bytes_per_element = 4;
  std::function<WireCost(int from, int to)> wire;
  WireCost node;                   // of a node step over the bytes of its range, once all ranks of the node are there
  const NodeMap* nodes = nullptr;  // for node steps
};
// Seconds until the last rank is done, by event simulation: every rank sends one message and receives one message at a
// time and runs ahead as above; adding costs nothing. All ranks' lists are run, so the work grows with their total
// length: for rings of thousands of ranks use the formula in collective_ring.cpp.
double price_steps(const std::vector<StepList>& of_rank, const PriceTerms& terms);
// The same over wires that are all alike.
double price_steps(const std::vector<StepList>& of_rank, double bytes_per_element, WireCost wire);

}  // namespace rw
