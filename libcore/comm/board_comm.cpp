#include "libcore/comm/board_comm.h"

#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"
#include "libcore/comm/cuts.h"

namespace rw {
namespace {

class BoardComm final : public Comm {
 public:
  explicit BoardComm(BoardCommConfig c)
      : board_(std::move(c.board)),
        host_(std::move(c.host)),
        hosts_(std::move(c.hosts)),
        places_(std::move(c.places)) {}

  int rank() const override { return board_->rank(); }
  int size() const override { return board_->size(); }
  std::string name() const override { return board_->group(); }
  std::vector<std::string> hosts() const override { return hosts_; }
  std::vector<Placement> places() const override { return places_; }
  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    return adopt_segment(*board_, host_->make_segment(*board_, bytes, timeout_s()), bytes);
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    check_reducible("all_reduce", t, op);
    return {board_->start({.op = BoardOp::all_reduce, .data = data, .n = n, .t = t, .reduce = op})};
  }
  Request reduce_scatter_start(void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    check_reducible("reduce_scatter", t, ReduceOp::sum);
    return {board_->start({.op = BoardOp::reduce_scatter,
                           .data = first_dealt(data, cuts, t),
                           .n = dealt_out(cuts),
                           .t = t,
                           .parts = parts_of(cuts)})};
  }
  Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) override {
    check_cuts(cuts, size());
    return {board_->start({.op = BoardOp::all_gather,
                           .data = first_dealt(data, cuts, t),
                           .part = part,
                           .n = dealt_out(cuts),
                           .t = t,
                           .parts = parts_of(cuts)})};
  }
  Request send_start(const void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && bytes >= 0 && tag >= 0, "send %lld bytes to rank %d of %d with tag %d",
          static_cast<long long>(bytes), peer, size(), tag);
    return {.id = board_->mail().send(data, bytes, peer, tag), .mail = true};
  }
  Request recv_start(void* data, int64_t bytes, int peer, int tag) override {
    CHECK(peer >= 0 && peer < size() && bytes >= 0 && tag >= 0, "recv %lld bytes from rank %d of %d with tag %d",
          static_cast<long long>(bytes), peer, size(), tag);
    return {.id = board_->mail().recv(data, bytes, peer, tag), .mail = true};
  }
  int64_t mapped_bytes() const override { return board_->mapped_bytes(); }
  void progress() override { board_->step(); }
  void look_for_dead_peers() override { board_->look_for_dead_peers(); }
  bool done(Request r) override { return r.id < 0 || (r.mail ? board_->mail().done(r.id) : board_->finished(r.id)); }
  void wait(Request r) override {
    if (r.id < 0) return;
    r.mail ? board_->wait_mail(r.id, timeout_s()) : board_->wait(r.id, timeout_s());
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    board_->run({.op = BoardOp::broadcast, .data = data, .n = bytes, .root = root}, timeout_s());
  }
  void barrier() override { board_->run({}, timeout_s()); }
  std::unique_ptr<Comm> split(int color, int key) override { return host_->split(*board_, color, key, timeout_s()); }

 private:
  std::unique_ptr<Board> board_;
  std::unique_ptr<BoardHost> host_;
  std::vector<std::string> hosts_;
  std::vector<Placement> places_;
};

}  // namespace

SharedBuffer adopt_segment(Board& board, const std::shared_ptr<Segment>& segment, int64_t bytes) {
  if (!segment) {
    if (board.rank() == 0)
      log_warning(
          "no shared memory for {} on each of {} ranks (is /dev/shm too small?); going on with private memory and "
          "copies",
          format_bytes(static_cast<double>(bytes)), board.size());
    return allocate_private(bytes);
  }
  board.segments().add(segment);
  return {segment->parts[static_cast<size_t>(board.rank())], bytes, segment};
}

std::unique_ptr<Comm> make_board_comm(BoardCommConfig config) { return std::make_unique<BoardComm>(std::move(config)); }

}  // namespace rw
