#include "libcore/comm/node_leaders.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

constexpr int64_t kTags = 1 << 14;  // operations under way at a time stay far below

int64_t count(const std::vector<Slice>& share) {
  int64_t n = 0;
  for (const Slice& s : share) n += s.n;
  return n;
}

}  // namespace

// What the leader of one operation has under way.
struct NodeLeaders::Exchange {
  Transfers transfers;
  std::vector<std::byte> incoming;  // (nodes, elements of my share) what the others sent of my share
};

struct NodeLeaders::Pending {
  int64_t id = 0;
  LeaderTask task;  // data and t: of what travels
  std::byte* data = nullptr;
  std::vector<std::vector<Slice>> shares;  // (nodes)
  std::vector<float> wide;                 // data as f32, when the caller's is bf16 or f16
  void* narrow_data = nullptr;
  DType narrow_t = DType::f32;
  int64_t board_first = -1, board_share = -1;  // board requests of 1 and 4
  enum class At : uint8_t { node, scatter, gather, share, done } at = At::node;
  std::unique_ptr<Exchange> exchange;
};

NodeLeaders::NodeLeaders(const MpiCommConfig& config) : c_(config) {}
NodeLeaders::~NodeLeaders() = default;

int64_t NodeLeaders::start(const LeaderTask& task) {
  Pending p;
  p.id = next_++;
  p.task = task;
  if (task.op != BoardOp::all_gather && is_16bit(task.t)) {
    p.wide.resize(static_cast<size_t>(task.n));
    widen(p.wide.data(), task.data, task.n, task.t);
    p.narrow_data = task.data;
    p.narrow_t = task.t;
    p.task.data = p.wide.data();
    p.task.t = DType::f32;
  }
  p.data = static_cast<std::byte*>(p.task.data);
  p.shares.resize(c_.of_node.size());
  for (int q = 0; q < n_nodes(); ++q) {
    auto& share = p.shares[static_cast<size_t>(q)];
    if (task.op == BoardOp::all_reduce) share.push_back(slice_of(task.n, dtype_bytes(p.task.t), q, n_nodes()));
    else
      for (int r : c_.of_node[static_cast<size_t>(q)]) share.push_back(task.parts[static_cast<size_t>(r)]);
  }
  if (c_.board) start_node(p);
  pending_.push_back(std::move(p));
  step();
  return next_ - 1;
}

void NodeLeaders::start_node(Pending& p) {
  const int64_t element = dtype_bytes(p.task.t);
  std::vector<Slice> mine;  // the parts of this node's ranks
  for (size_t r = 0; r < p.task.parts.size(); ++r)
    if (c_.places[r].node == c_.self.place.node) mine.push_back(p.task.parts[r]);
  BoardTask first{.op = BoardOp::all_reduce, .data = p.data, .n = p.task.n, .t = p.task.t, .reduce = p.task.reduce};
  if (p.task.op == BoardOp::all_gather) {
    // The board works on the range that holds the node's parts, which need not lie side by side.
    int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
    for (const Slice& s : mine) {
      begin = std::min(begin, s.begin);
      end = std::max(end, s.begin + s.n);
    }
    first.op = BoardOp::all_gather;
    first.data = p.data + begin * element;
    first.n = end - begin;
    first.parts = mine;
    for (Slice& s : first.parts) s.begin -= begin;
    first.part = p.data + mine[static_cast<size_t>(c_.board->rank())].begin * element;
  }
  p.board_first = c_.board->start(std::move(first));
  // Held until this rank's part of the first request is through: it must not take the leader's result and then go on
  // adding.
  BoardTask share{.op = BoardOp::broadcast, .data = p.data, .n = p.task.n, .t = p.task.t, .held = true};
  if (p.task.op == BoardOp::reduce_scatter) share.parts = mine;
  p.board_share = c_.board->start(std::move(share));
}

const NodeLeaders::Pending* NodeLeaders::find(int64_t id) const {
  const int64_t first = next_ - static_cast<int64_t>(pending_.size());
  return id < first ? nullptr : &pending_[static_cast<size_t>(id - first)];
}

bool NodeLeaders::done(int64_t id) const {
  CHECK(id >= 0 && id < next_, "request %lld was not started here", static_cast<long long>(id));
  const Pending* p = find(id);
  return !p || p->at == Pending::At::done;
}

bool NodeLeaders::step() {
  bool moved = false;
  for (Pending& p : pending_)
    while (advance(p)) moved = true;
  while (!pending_.empty() && pending_.front().at == Pending::At::done) pending_.pop_front();
  return moved;
}

bool NodeLeaders::advance(Pending& p) {
  using At = Pending::At;
  const BoardOp op = p.task.op;
  switch (p.at) {
    case At::node:
      if (c_.board && !c_.board->finished(p.board_first)) return false;
      if (!is_leader()) {
        c_.board->release(p.board_share);
        p.at = At::share;
        return true;
      }
      if (spare_.empty()) spare_.push_back(std::make_unique<Exchange>());
      p.exchange = std::move(spare_.back());
      spare_.pop_back();
      p.at = op == BoardOp::all_gather ? At::gather : At::scatter;
      exchange_shares(p, p.at == At::scatter);
      return true;
    case At::scatter:
      if (!p.exchange->transfers.done()) return false;
      reduce_share(p);
      p.at = At::gather;
      if (op == BoardOp::all_reduce) exchange_shares(p, false);
      return true;
    case At::gather:
      if (!p.exchange->transfers.done()) return false;
      spare_.push_back(std::move(p.exchange));
      if (c_.board) c_.board->release(p.board_share);
      p.at = At::share;
      return true;
    case At::share:
      if (c_.board && !c_.board->finished(p.board_share)) return false;
      give_back(p);
      p.at = At::done;
      return true;
    case At::done: return false;
  }
  return false;
}

// Scatter: their shares out, what they have of mine in, apart. Gather: my share out, theirs in, each at its place.
void NodeLeaders::exchange_shares(Pending& p, bool scatter) {
  const int64_t element = dtype_bytes(p.task.t);
  const int me = c_.leaders->rank(), tag = static_cast<int>(p.id % kTags) * 2 + (scatter ? 0 : 1);
  const auto& mine = p.shares[static_cast<size_t>(me)];
  auto& [transfers, incoming] = *p.exchange;
  const int64_t my_bytes = count(mine) * element;
  if (scatter && static_cast<int64_t>(incoming.size()) < my_bytes * n_nodes())
    incoming.resize(static_cast<size_t>(my_bytes * n_nodes()));
  for (int q = 0; q < n_nodes(); ++q) {
    if (q == me) continue;
    const auto& theirs = p.shares[static_cast<size_t>(q)];
    int64_t at = q * my_bytes;
    for (const Slice& s : scatter ? mine : theirs) {
      if (s.n == 0) continue;
      std::byte* to = scatter ? incoming.data() + at : p.data + s.begin * element;
      c_.leaders->start_recv(transfers, to, s.n * element, q, tag);
      at += s.n * element;
    }
    for (const Slice& s : scatter ? theirs : mine)
      if (s.n > 0) c_.leaders->start_send(transfers, p.data + s.begin * element, s.n * element, q, tag);
  }
}

void NodeLeaders::reduce_share(Pending& p) {
  const int64_t element = dtype_bytes(p.task.t);
  const int me = c_.leaders->rank();
  const auto& mine = p.shares[static_cast<size_t>(me)];
  const int64_t my_bytes = count(mine) * element;
  std::vector<const void*> sources(static_cast<size_t>(n_nodes()));
  int64_t at = 0;
  for (const Slice& s : mine) {
    void* target = p.data + s.begin * element;
    for (int q = 0; q < n_nodes(); ++q)
      sources[static_cast<size_t>(q)] = q == me ? target : p.exchange->incoming.data() + q * my_bytes + at;
    reduce_in_rank_order({.sources = sources, .targets = {&target, 1}, .n = s.n, .t = p.task.t, .op = p.task.reduce});
    at += s.n * element;
  }
}

void NodeLeaders::give_back(Pending& p) {
  if (!p.narrow_data) return;
  Slice s{0, p.task.n};
  if (p.task.op == BoardOp::reduce_scatter) s = p.task.parts[static_cast<size_t>(c_.link->rank())];
  narrow(static_cast<std::byte*>(p.narrow_data) + s.begin * dtype_bytes(p.narrow_t), p.wide.data() + s.begin, s.n,
         p.narrow_t);
}

std::string NodeLeaders::complaint(int64_t id) const {
  const Pending* p = find(id);
  if (!p) return fmt::format("operation #{} (group mpi)", id);
  const DType t = p->narrow_data ? p->narrow_t : p->task.t;
  const std::string what = fmt::format("{} #{} ({}, group mpi): ", board_op_name(p->task.op), p->id,
                                       format_bytes(static_cast<double>(p->task.n * dtype_bytes(t))));
  if (p->at == Pending::At::node) return what + c_.board->blocked_on(p->board_first);
  if (p->at == Pending::At::share) return what + c_.board->blocked_on(p->board_share);
  const int peer = p->exchange->transfers.pending_peer();
  return what + (peer < 0 ? "a node" : c_.labels[static_cast<size_t>(c_.of_node[static_cast<size_t>(peer)][0])]) +
         (p->at == Pending::At::scatter ? " did not arrive"
                                        : " did not send its share (it may itself wait for another rank)");
}

}  // namespace rw
