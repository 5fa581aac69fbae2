// Reductions and gathers of ranks on several nodes: the ranks of a node meet on their board, node leaders (the lowest
// rank of each) exchange messages. Let a node's share of the data be a slice of it (all_reduce) or its ranks' parts.
// Per operation, with L nodes and n elements:
//   1. node     all_reduce, reduce_scatter: the node's ranks reduce on their board; all_gather: they gather there;
//   2. scatter  (not all_gather) each leader sends every other leader that one's share and sums its own over the nodes
//   in
//               order: (L-1)/L n elements out and in;
//   3. gather   (not reduce_scatter) each leader sends its share to all others: again (L-1)/L n out and in, which is
//   the
//               least;
//   4. share    the leader broadcasts on the board what the node's ranks need.
// A reduction is the sum over the nodes, in the order of their lowest ranks, of the sums over each node's ranks in rank
// order: (node 0: (r0 + r1) + ...) + (node 1: ...). bf16 and f16 travel as f32 and are rounded at the end.
// Everything moves in step().
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/mpi_comm.h"
#include "libcore/comm/reduce.h"

namespace rw {

struct LeaderTask {
  BoardOp op = BoardOp::all_reduce;  // or reduce_scatter, all_gather
  void* data = nullptr;              // (n); of all_gather with this rank's part in its place
  int64_t n = 0;
  DType t = DType::f32;
  ReduceOp reduce = ReduceOp::sum;
  std::vector<Slice> parts = {};  // (ranks) unless all_reduce
};

class NodeLeaders {
 public:
  // The config outlives this and stays where it is.
  explicit NodeLeaders(const MpiCommConfig& config);
  ~NodeLeaders();

  // Collective, in the same order on all ranks. The memory must stay as it is until done().
  int64_t start(const LeaderTask& task);
  bool done(int64_t id) const;
  bool step();  // true when something moved
  std::string complaint(int64_t id) const;

 private:
  struct Exchange;
  struct Pending;
  bool is_leader() const { return c_.leaders != nullptr; }
  int n_nodes() const { return static_cast<int>(c_.of_node.size()); }
  void start_node(Pending& p);
  bool advance(Pending& p);
  void exchange_shares(Pending& p, bool scatter);
  void reduce_share(Pending& p);
  void give_back(Pending& p);
  const Pending* find(int64_t id) const;

  const MpiCommConfig& c_;
  std::deque<Pending> pending_;  // in the order started; the last is next_ - 1
  int64_t next_ = 0;
  std::vector<std::unique_ptr<Exchange>> spare_;
};

}  // namespace rw
