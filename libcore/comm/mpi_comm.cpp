// Ranks on several nodes. A reduction is the sum over the nodes, in the order of their lowest ranks, of the sums over
// each node's ranks in rank order: (node 0: (r0 + r1) + ...) + (node 1: ...). Per request:
//   1. the node's ranks reduce on their board;
//   2. each of the L leaders sends every other leader its slice (L-1 messages of n/L), sums its own slice over the
//   nodes in
//      order, and sends the result to all (again L-1 messages of n/L): 2(L-1)/L n elements out and in, which is the
//      least;
//   3. the leader broadcasts on the board.
// Everything moves in progress() and wait(). The other operations are messages between all ranks: broadcast a binomial
// tree, barrier a dissemination, all_gather a ring, so that each wait knows which peer it waits for.
#include "libcore/comm/mpi_comm.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/board_comm.h"
#include "libcore/comm/node_board.h"
#include "libcore/comm/patience.h"
#include "libcore/comm/reduce.h"

namespace rw {
namespace {

constexpr int kCollectiveTag = 1;
constexpr int64_t kReduceTags = 1 << 14;          // requests under way at a time stay far below
constexpr int64_t kScatterChunkBytes = 16 << 20;  // scratch of reduce_scatter

// Step 2 for the leader of one request.
struct LeaderExchange {
  Transfers transfers;
  std::vector<std::byte> incoming;  // (leaders, slice) what the others sent of my slice
};

struct Pending {
  int64_t id = 0;
  std::byte* data = nullptr;
  int64_t n = 0;
  DType t = DType::f32;
  ReduceOp op = ReduceOp::sum;
  int64_t node_sum = -1, node_copy = -1;  // board requests of steps 1 and 3
  enum class At : uint8_t { node, scatter, gather, share, done } at = At::node;
  std::unique_ptr<LeaderExchange> exchange;
};

class MpiComm final : public Comm {
 public:
  explicit MpiComm(MpiCommConfig config) : c_(std::move(config)) {}

  int rank() const override { return c_.link->rank(); }
  int size() const override { return c_.link->size(); }
  std::string name() const override { return "mpi"; }
  std::vector<std::string> hosts() const override { return c_.hosts; }

  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    if (!c_.node) return allocate_private(bytes);
    return adopt_segment(*c_.node, make_shm_segment(*c_.node, bytes, timeout_s()), bytes);
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    Pending p;
    p.id = next_++;
    p.data = static_cast<std::byte*>(data);
    p.n = n;
    p.t = t;
    p.op = op;
    if (c_.node) {
      p.node_sum = c_.node->start({.op = BoardOp::all_reduce, .output = data, .n = n, .t = t, .reduce = op});
      p.node_copy =
          c_.node->start({.op = BoardOp::broadcast, .output = data, .n = n * dtype_bytes(t), .held = is_leader()});
    }
    pending_.push_back(std::move(p));
    step();
    return {next_ - 1};
  }
  void progress() override { step(); }
  void wait(Request r) override {
    CHECK(r.id >= 0 && r.id < next_, "request %lld was not started here", static_cast<long long>(r.id));
    wait_for([&] { return find(r.id) == nullptr || find(r.id)->at == Pending::At::done; },
             [&] { return describe(*find(r.id)); });
  }

  void reduce_scatter(const void* data, void* shard, int64_t n, DType t) override {
    const int64_t element = dtype_bytes(t);
    const int64_t chunk = std::max<int64_t>(1, kScatterChunkBytes / (element * size()));
    const auto* in = static_cast<const std::byte*>(data);
    for (int64_t begin = 0; begin < n; begin += chunk) {
      const int64_t m = std::min(chunk, n - begin), bytes = m * element;
      scratch_.resize(static_cast<size_t>(std::max<int64_t>(bytes * size(), static_cast<int64_t>(scratch_.size()))));
      for (int r = 0; r < size(); ++r)
        std::memcpy(scratch_.data() + r * bytes, in + (r * n + begin) * element, static_cast<size_t>(bytes));
      all_reduce(scratch_.data(), m * size(), t, ReduceOp::sum);
      std::memcpy(static_cast<std::byte*>(shard) + begin * element, scratch_.data() + rank() * bytes,
                  static_cast<size_t>(bytes));
    }
  }

  void all_gather(const void* shard, void* data, int64_t bytes) override {
    auto* all = static_cast<std::byte*>(data);
    if (shard != all + rank() * bytes && bytes > 0)
      std::memcpy(all + rank() * bytes, shard, static_cast<size_t>(bytes));
    const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
    for (int step_i = 0; step_i < size() - 1; ++step_i) {
      const int out = (rank() - step_i + size()) % size(), in = (rank() - step_i - 1 + size()) % size();
      Transfers t;
      c_.link->start_recv(t, all + in * bytes, bytes, previous, kCollectiveTag);
      c_.link->start_send(t, all + out * bytes, bytes, next, kCollectiveTag);
      finish(t, "all_gather", bytes);
    }
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    CHECK(root >= 0 && root < size(), "root %d of %d ranks", root, size());
    const int place = (rank() - root + size()) % size();  // in the tree, whose root is place 0
    int reach = 1;
    for (; reach < size() && !(place & reach); reach *= 2) {
    }
    if (place != 0) {
      Transfers t;
      c_.link->start_recv(t, data, bytes, (place - reach + root) % size(), kCollectiveTag);
      finish(t, "broadcast", bytes);
    }
    Transfers t;
    for (int step_i = reach / 2; step_i >= 1; step_i /= 2)
      if (place + step_i < size())
        c_.link->start_send(t, data, bytes, (place + step_i + root) % size(), kCollectiveTag);
    finish(t, "broadcast", bytes);
  }

  void barrier() override {
    char out = 0, in = 0;
    for (int reach = 1; reach < size(); reach *= 2) {
      Transfers t;
      c_.link->start_recv(t, &in, 1, (rank() - reach % size() + size()) % size(), kCollectiveTag);
      c_.link->start_send(t, &out, 1, (rank() + reach) % size(), kCollectiveTag);
      finish(t, "barrier", 0);
    }
  }

  void send(const void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0, "send to rank %d with tag %d", peer, tag);
    Transfers t;
    c_.mail->start_send(t, data, bytes, peer, tag);
    finish(t, "send", bytes);
  }

  void recv(void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && peer != rank() && tag >= 0, "recv from rank %d with tag %d", peer, tag);
    std::optional<MpiLink::Probe> found;
    wait_for([&] { return (found = c_.mail->probe(peer)).has_value(); },
             [&] {
               return fmt::format("recv of {} (tag {}, group mpi): {} did not send",
                                  format_bytes(static_cast<double>(bytes)), tag, label(peer));
             });
    if (found->tag != tag || found->bytes != std::min(bytes, MpiLink::kMaxMessage))
      fail(ErrorKind::runtime, "recv (group mpi): expected {} bytes with tag {} from {}, found {} bytes with tag {}",
           bytes, tag, label(peer), found->bytes, found->tag);
    Transfers t;
    c_.mail->start_recv(t, data, bytes, peer, tag);
    finish(t, "recv", bytes);
  }

  std::unique_ptr<Comm> split(int color, int key) override {
    CHECK(color >= 0, "split color %d", color);
    barrier();  // a peer may still need this rank's progress, and MPI_Comm_split makes none
    auto comm = connect_ranks(c_.link->split(color, key), c_.node_color);
    comm->set_timeout(timeout_s());
    return comm;
  }

 private:
  using At = Pending::At;
  bool is_leader() const { return c_.leaders != nullptr; }
  int n_leaders() const { return static_cast<int>(c_.leader_ranks.size()); }
  const std::string& label(int r) const { return c_.labels[static_cast<size_t>(r)]; }

  Pending* find(int64_t id) {
    const int64_t first = next_ - static_cast<int64_t>(pending_.size());
    return id < first ? nullptr : &pending_[static_cast<size_t>(id - first)];
  }

  bool step() {
    bool moved = c_.node && c_.node->step();
    for (Pending& p : pending_)
      while (advance(p)) moved = true;
    while (!pending_.empty() && pending_.front().at == At::done) pending_.pop_front();
    return moved;
  }

  bool advance(Pending& p) {
    switch (p.at) {
      case At::node:
        if (c_.node && !c_.node->finished(p.node_sum)) return false;
        if (is_leader()) start_scatter(p);
        p.at = is_leader() ? At::scatter : At::share;
        return true;
      case At::scatter:
        if (!p.exchange->transfers.done()) return false;
        reduce_slice(p);
        start_gather(p);
        p.at = At::gather;
        return true;
      case At::gather:
        if (!p.exchange->transfers.done()) return false;
        spare_.push_back(std::move(p.exchange));
        if (c_.node) c_.node->release(p.node_copy);
        p.at = At::share;
        return true;
      case At::share:
        if (c_.node && !c_.node->finished(p.node_copy)) return false;
        p.at = At::done;
        return true;
      case At::done: return false;
    }
    return false;
  }

  Slice slice(const Pending& p, int leader) const { return slice_of(p.n, dtype_bytes(p.t), leader, n_leaders()); }
  int tag(const Pending& p, int phase) const { return static_cast<int>(p.id % kReduceTags) * 2 + phase; }

  void start_scatter(Pending& p) {
    if (spare_.empty()) spare_.push_back(std::make_unique<LeaderExchange>());
    p.exchange = std::move(spare_.back());
    spare_.pop_back();
    const int64_t element = dtype_bytes(p.t);
    const int me = c_.leaders->rank();
    const int64_t mine = slice(p, me).n * element;
    auto& incoming = p.exchange->incoming;
    if (static_cast<int64_t>(incoming.size()) < mine * n_leaders())
      incoming.resize(static_cast<size_t>(mine * n_leaders()));
    for (int q = 0; q < n_leaders(); ++q) {
      if (q == me) continue;
      const Slice theirs = slice(p, q);
      if (mine > 0) c_.leaders->start_recv(p.exchange->transfers, incoming.data() + q * mine, mine, q, tag(p, 0));
      if (theirs.n > 0)
        c_.leaders->start_send(p.exchange->transfers, p.data + theirs.begin * element, theirs.n * element, q,
                               tag(p, 0));
    }
  }

  void reduce_slice(Pending& p) {
    const int64_t element = dtype_bytes(p.t);
    const int me = c_.leaders->rank();
    const Slice mine = slice(p, me);
    std::vector<const void*> sources;
    for (int q = 0; q < n_leaders(); ++q)
      sources.push_back(q == me ? p.data + mine.begin * element : p.exchange->incoming.data() + q * mine.n * element);
    void* target = p.data + mine.begin * element;
    reduce_in_rank_order({.sources = sources, .targets = {&target, 1}, .n = mine.n, .t = p.t, .op = p.op});
  }

  void start_gather(Pending& p) {
    const int64_t element = dtype_bytes(p.t);
    const int me = c_.leaders->rank();
    const Slice mine = slice(p, me);
    for (int q = 0; q < n_leaders(); ++q) {
      if (q == me) continue;
      const Slice theirs = slice(p, q);
      if (theirs.n > 0)
        c_.leaders->start_recv(p.exchange->transfers, p.data + theirs.begin * element, theirs.n * element, q,
                               tag(p, 1));
      if (mine.n > 0)
        c_.leaders->start_send(p.exchange->transfers, p.data + mine.begin * element, mine.n * element, q, tag(p, 1));
    }
  }

  std::string describe(Pending& p) {
    const std::string what = fmt::format("all_reduce #{} ({}, group mpi): ", p.id,
                                         format_bytes(static_cast<double>(p.n * dtype_bytes(p.t))));
    if (p.at == At::node) return what + c_.node->blocked_on(p.node_sum);
    if (p.at == At::share) return what + c_.node->blocked_on(p.node_copy);
    const int peer = p.exchange->transfers.pending_peer();
    return what + (peer < 0 ? "a node" : label(c_.leader_ranks[static_cast<size_t>(peer)])) +
           (p.at == At::scatter ? " did not arrive" : " did not send its sums (it may itself wait for another rank)");
  }

  void finish(Transfers& t, const char* what, int64_t bytes) {
    wait_for([&] { return t.done(); },
             [&] {
               const int peer = t.pending_peer();
               return fmt::format("{} ({}, group mpi): {} did not arrive", what,
                                  format_bytes(static_cast<double>(bytes)), peer < 0 ? "a rank" : label(peer));
             });
  }

  template <typename Ready, typename Complaint>
  void wait_for(Ready ready, Complaint complaint) {
    Patience patience(nullptr, ranks_fit_cores(c_.node ? c_.node->size() : size()));
    while (true) {
      const bool moved = step();
      if (ready()) return;
      if (moved) {
        patience.moved();
        continue;
      }
      patience.pause();
      if (patience.slept() && c_.node) c_.node->look_for_dead_peers();
      if (patience.waited_s() > timeout_s()) fail_waiting(complaint(), timeout_s());
    }
  }

  MpiCommConfig c_;
  std::deque<Pending> pending_;  // in the order started; the last is next_ - 1
  int64_t next_ = 0;
  std::vector<std::unique_ptr<LeaderExchange>> spare_;
  std::vector<std::byte> scratch_;
};

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(MpiCommConfig config) { return std::make_unique<MpiComm>(std::move(config)); }

}  // namespace rw
