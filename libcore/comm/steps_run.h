// Runs a rank's step list (libcore/schedule/collective.h) over messages that start at once and are asked later whether
// they are done. Nothing here waits: step() does what can be done now, so that a collective goes on between kernels.
//
// Sums: each hop computes one operand + the other, in the list's order; of bf16 and f16 in f32, rounded at each hop
// because that is what travels (a ring of p ranks rounds p-1 times, a tree or doubling about log2 p times).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/dtype.h"
#include "libcore/comm/comm.h"
#include "libcore/schedule/collective.h"

namespace rw {

// Messages of one collective, apart from those of all others.
class StepLink {
 public:
  virtual ~StepLink() = default;
  // At once; messages of a pair arrive in the order started. The memory must stay as it is until test() said true.
  virtual int64_t start_send(const void* data, int64_t bytes, int peer) = 0;
  virtual int64_t start_recv(void* data, int64_t bytes, int peer) = 0;
  virtual bool test(int64_t message) = 0;  // moves messages forward; not asked again once it said true
};

// The node's shared memory. Its operations are planned by all ranks of the node in the same order when a run starts, so
// that several runs may be under way; each begins when its data is there.
class NodeLevel {
 public:
  virtual ~NodeLevel() = default;
  virtual int64_t plan_reduce(void* data, int64_t n, DType t, ReduceOp op) = 0;  // the leader's data gets the result
  virtual int64_t plan_broadcast(void* data, int64_t bytes) = 0;                 // from the leader
  virtual void begin(int64_t operation) = 0;
  virtual bool test(int64_t operation) = 0;
};

struct StepsTask {
  std::shared_ptr<const StepList> steps;
  void* data = nullptr;  // ranges count in elements from here
  DType t = DType::f32;
  ReduceOp op = ReduceOp::sum;
  StepLink* link = nullptr;
  NodeLevel* node = nullptr;  // for node steps
};

class StepsRun {
 public:
  // The last run is done. Memory for arriving elements is kept from run to run.
  void start(const StepsTask& task);
  bool step();  // true when something moved
  bool done() const { return n_running_ == 0 && next_ == n_steps_; }
  // Whom the oldest unfinished step waits for; -1: the ranks of this node, or nobody.
  int pending_peer() const;

 private:
  struct Running {
    const CollectiveStep* step = nullptr;
    int64_t send = -1, receive = -1, node = -1;  // what is under way; -1: nothing, or done
    int slot = -1;                               // of the scratch; -1: none, or added
    bool is_done() const { return send < 0 && receive < 0 && node < 0 && slot < 0; }
  };
  bool can_start(const CollectiveStep& s) const;
  void start_next();
  bool poll(int k);
  void add(const Running& r);
  std::byte* at(const ElementRange& r) const;
  std::byte* scratch(int slot) const { return scratch_.get() + slot * slot_bytes_; }

  StepsTask task_;
  size_t next_ = 0, n_steps_ = 0;             // the first step that has not started
  std::array<Running, kStepsAhead> running_;  // in the order of the list
  int n_running_ = 0;
  std::vector<int64_t> node_operations_;  // planned, in order
  size_t next_node_ = 0;
  uint32_t used_slots_ = 0;  // bits
  std::shared_ptr<std::byte> scratch_;
  int64_t slot_bytes_ = 0, scratch_bytes_ = 0;
};

}  // namespace rw
