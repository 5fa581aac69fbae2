#include "libcore/comm/board_comm.h"

#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/log.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

class BoardComm final : public Comm {
 public:
  explicit BoardComm(BoardCommConfig c)
      : board_(std::move(c.board)), host_(std::move(c.host)), hosts_(std::move(c.hosts)) {}

  int rank() const override { return board_->rank(); }
  int size() const override { return board_->size(); }
  std::string name() const override { return board_->group(); }
  std::vector<std::string> hosts() const override { return hosts_; }
  SharedBuffer allocate(int64_t bytes) override {
    CHECK(bytes >= 0, "allocate %lld bytes", static_cast<long long>(bytes));
    return adopt_segment(*board_, host_->make_segment(*board_, bytes, timeout_s()), bytes);
  }

  Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) override {
    return {board_->start({.op = BoardOp::all_reduce, .output = data, .n = n, .t = t, .reduce = op})};
  }
  void progress() override { board_->step(); }
  void wait(Request request) override { board_->wait(request.id, timeout_s()); }

  void reduce_scatter(const void* data, void* shard, int64_t n, DType t) override {
    board_->run({.op = BoardOp::reduce_scatter, .input = data, .output = shard, .n = n, .t = t}, timeout_s());
  }
  void all_gather(const void* shard, void* data, int64_t bytes) override {
    board_->exchange(shard, data, bytes, timeout_s());
  }
  void broadcast(void* data, int64_t bytes, int root) override {
    board_->run({.op = BoardOp::broadcast, .output = data, .n = bytes, .root = root}, timeout_s());
  }
  void send(const void* data, int64_t bytes, int peer, int tag) override {
    board_->send(data, bytes, peer, tag, timeout_s());
  }
  void recv(void* data, int64_t bytes, int peer, int tag) override {
    board_->recv(data, bytes, peer, tag, timeout_s());
  }
  void barrier() override { board_->run({}, timeout_s()); }
  std::unique_ptr<Comm> split(int color, int key) override { return host_->split(*board_, color, key, timeout_s()); }

 private:
  std::unique_ptr<Board> board_;
  std::unique_ptr<BoardHost> host_;
  std::vector<std::string> hosts_;
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
