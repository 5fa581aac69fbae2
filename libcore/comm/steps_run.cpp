#include "libcore/comm/steps_run.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/comm/reduce.h"
#include "libcore/comm/segment.h"

namespace rw {
namespace {

bool adds(const CollectiveStep& s) {
  return s.kind == StepKind::exchange && s.from >= 0 && s.arrival != OnArrival::copy;
}

}  // namespace

std::byte* StepsRun::at(const ElementRange& r) const {
  return static_cast<std::byte*>(task_.data) + r.begin * dtype_bytes(task_.t);
}

void StepsRun::start(const StepsTask& task) {
  CHECK(done(), "a run of steps is under way");
  task_ = task;
  next_ = next_node_ = 0;
  n_steps_ = task.steps->size();
  node_operations_.clear();
  int64_t longest = 0;
  for (const CollectiveStep& s : *task.steps) {
    if (adds(s)) longest = std::max(longest, s.receive.n);
    if (s.kind == StepKind::exchange) continue;
    CHECK(task.node != nullptr, "a node step without a node level");
    node_operations_.push_back(s.kind == StepKind::node_reduce
                                   ? task.node->plan_reduce(at(s.receive), s.receive.n, task.t, task.op)
                                   : task.node->plan_broadcast(at(s.receive), s.receive.n * dtype_bytes(task.t)));
  }
  slot_bytes_ = (longest * dtype_bytes(task.t) + 63) / 64 * 64;
  if (slot_bytes_ * kStepsAhead > scratch_bytes_) {
    scratch_bytes_ = slot_bytes_ * kStepsAhead;
    scratch_ = heap_bytes(scratch_bytes_);
  }
}

bool StepsRun::step() {
  bool moved = false;
  for (int k = 0; k < n_running_;) {
    moved = poll(k) || moved;
    if (running_[static_cast<size_t>(k)].is_done()) {
      std::move(running_.begin() + k + 1, running_.begin() + n_running_, running_.begin() + k);
      --n_running_;
    } else {
      ++k;
    }
  }
  while (next_ < n_steps_ && n_running_ < kStepsAhead && can_start((*task_.steps)[next_])) {
    start_next();
    moved = true;
  }
  return moved;
}

bool StepsRun::can_start(const CollectiveStep& s) const {
  return std::none_of(running_.begin(), running_.begin() + n_running_,
                      [&](const Running& earlier) { return starts_after(s, *earlier.step); });
}

void StepsRun::start_next() {
  const CollectiveStep& s = (*task_.steps)[next_++];
  Running& r = running_[static_cast<size_t>(n_running_++)];
  r = {.step = &s};
  if (s.kind != StepKind::exchange) {
    r.node = node_operations_[next_node_++];
    task_.node->begin(r.node);
    return;
  }
  const int64_t element = dtype_bytes(task_.t);
  // The receive first: a message that finds its place needs no buffer on the way.
  if (s.from >= 0) {
    std::byte* place = at(s.receive);
    if (adds(s)) {
      r.slot = std::countr_one(used_slots_);
      used_slots_ |= 1u << r.slot;
      place = scratch(r.slot);
    }
    r.receive = task_.link->start_recv(place, s.receive.n * element, s.from);
  }
  if (s.to >= 0) r.send = task_.link->start_send(at(s.send), s.send.n * element, s.to);
}

// One look at a running step: what has come or gone, and whether what has come can be added.
bool StepsRun::poll(int k) {
  Running& r = running_[static_cast<size_t>(k)];
  bool moved = false;
  const auto ask = [&](int64_t& id, auto* whom) {
    if (id < 0 || !whom->test(id)) return;
    id = -1;
    moved = true;
  };
  ask(r.node, task_.node);
  ask(r.receive, task_.link);
  ask(r.send, task_.link);
  if (r.slot < 0 || r.receive >= 0) return moved;
  if (r.send >= 0 && r.step->send.touches(r.step->receive)) return moved;
  for (int earlier = 0; earlier < k; ++earlier)
    if (adds_after(*r.step, *running_[static_cast<size_t>(earlier)].step)) return moved;
  add(r);
  used_slots_ &= ~(1u << r.slot);
  r.slot = -1;
  return true;
}

void StepsRun::add(const Running& r) {
  void* mine = at(r.step->receive);
  std::array<const void*, 2> operands{scratch(r.slot), mine};
  if (r.step->arrival == OnArrival::received_second) std::swap(operands[0], operands[1]);
  reduce_in_rank_order(
      {.sources = operands, .targets = {&mine, 1}, .n = r.step->receive.n, .t = task_.t, .op = task_.op});
}

int StepsRun::pending_peer() const {
  for (int k = 0; k < n_running_; ++k) {
    const Running& r = running_[static_cast<size_t>(k)];
    if (r.receive >= 0) return r.step->from;
    if (r.send >= 0) return r.step->to;
  }
  return -1;
}

}  // namespace rw
