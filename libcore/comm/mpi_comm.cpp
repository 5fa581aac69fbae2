// Ranks on several nodes: reductions and gathers through the nodes' leaders (node_leaders.h), messages over MPI
// (mpi_mail.h), broadcast a binomial tree and barrier a dissemination between all ranks, so that each wait knows which
// peer it waits for. Everything moves in progress() and the waits.
#include "libcore/comm/mpi_comm.h"

#include <cstring>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/comm/board_comm.h"
#include "libcore/comm/cuts.h"
#include "libcore/comm/mpi_mail.h"
#include "libcore/comm/node_board.h"
#include "libcore/comm/node_leaders.h"
#include "libcore/comm/patience.h"

namespace rw {
namespace {

constexpr int kCollectiveTag = 1;

class MpiComm final : public Comm {
 public:
  explicit MpiComm(MpiCommConfig config) : c_(std::move(config)), mail_(c_.mail, c_.labels), leaders_(c_) {}

  int rank() const override { return c_.link->rank(); }
  int size() const override { return c_.link->size(); }
  std::string name() const override { return "mpi"; }
  std::vector<std::string> hosts() const override { return c_.hosts; }
  std::vector<Placement> places() const override { return c_.places; }

  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    if (!c_.board) return allocate_private(bytes);
    return adopt_segment(*c_.board, make_shm_segment(*c_.board, bytes, timeout_s()), bytes);
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    CHECK(n >= 0, "all_reduce of %lld elements", static_cast<long long>(n));
    check_reducible("all_reduce", t, op);
    return {leaders_.start({.op = BoardOp::all_reduce, .data = data, .n = n, .t = t, .reduce = op})};
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    check_reducible("reduce_scatter", t, ReduceOp::sum);
    return {leaders_.start({.op = BoardOp::reduce_scatter,
                            .data = first_dealt(data, cuts, t),
                            .n = dealt_out(cuts),
                            .t = t,
                            .parts = parts_of(cuts)})};
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    auto parts = parts_of(cuts);
    std::byte* all = first_dealt(data, cuts, t);
    const Slice mine = parts[static_cast<size_t>(rank())];
    std::byte* home = all + mine.begin * dtype_bytes(t);
    if (mine.n > 0 && part != home) std::memcpy(home, part, static_cast<size_t>(mine.n * dtype_bytes(t)));
    return {leaders_.start(
        {.op = BoardOp::all_gather, .data = all, .n = dealt_out(cuts), .t = t, .parts = std::move(parts)})};
  }

  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && bytes >= 0 && tag >= 0, "send %lld bytes to rank %d of %d with tag %d",
          static_cast<long long>(bytes), peer, size(), tag);
    return {.id = mail_.send(data, bytes, peer, tag), .mail = true};
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && bytes >= 0 && tag >= 0, "recv %lld bytes from rank %d of %d with tag %d",
          static_cast<long long>(bytes), peer, size(), tag);
    const Request r{.id = mail_.recv(data, bytes, peer, tag), .mail = true};
    mail_.step();
    return r;
  }

  int64_t mapped_bytes() const override { return c_.board ? c_.board->mapped_bytes() : 0; }
  void progress() override { step(); }
  void look_for_dead_peers() override {
    if (c_.board) c_.board->look_for_dead_peers();
  }
  bool done(Request r) override { return r.id < 0 || (r.mail ? mail_.done(r.id) : leaders_.done(r.id)); }
  void wait(Request r) override {
    if (done(r)) return;
    if (r.mail) mail_.check_can_end(r.id);
    wait_for([&] { return done(r); }, [&] { return r.mail ? mail_.complaint(r.id) : leaders_.complaint(r.id); });
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

  std::unique_ptr<Comm> split(int color, int key) override {
    CHECK(color >= 0, "split color %d", color);
    barrier();  // a peer may still need this rank's progress, and MPI_Comm_split makes none
    auto comm = connect_ranks(c_.link->split(color, key), c_.self);
    comm->set_timeout(timeout_s());
    return comm;
  }

 private:
  const std::string& label(int r) const { return c_.labels[static_cast<size_t>(r)]; }

  bool step() {
    bool moved = c_.board && c_.board->step();
    moved = mail_.step() || moved;
    return leaders_.step() || moved;
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
    Patience patience(nullptr, ranks_fit_cores(c_.board ? c_.board->size() : size()));
    while (true) {
      const bool moved = step();
      if (ready()) return;
      if (moved) {
        patience.moved();
        continue;
      }
      patience.pause();
      if (patience.slept() && c_.board) c_.board->look_for_dead_peers();
      if (patience.waited_s() > timeout_s()) fail_waiting(complaint(), timeout_s());
    }
  }

  MpiCommConfig c_;
  MpiMail mail_;
  NodeLeaders leaders_;
};

}  // namespace

std::unique_ptr<Comm> make_mpi_comm(MpiCommConfig config) { return std::make_unique<MpiComm>(std::move(config)); }

}  // namespace rw
