#include "libcore/comm/board.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

// Containers may share /dev/shm and not the process numbers: numbers mean something within one such space only.
uint64_t pid_space() {
  struct stat info {};
  return stat("/proc/self/ns/pid", &info) == 0 ? static_cast<uint64_t>(info.st_ino) : 0;
}

}  // namespace

const char* board_op_name(BoardOp op) {
  switch (op) {
    case BoardOp::barrier: return "barrier";
    case BoardOp::all_reduce: return "all_reduce";
    case BoardOp::reduce_scatter: return "reduce_scatter";
    case BoardOp::all_gather: return "all_gather";
    case BoardOp::broadcast: return "broadcast";
  }
  return "?";
}

void JobHealth::fail_once(const std::string& why) {
  std::lock_guard lock(mutex);
  if (failed.load()) return;
  reason = why;
  failed.store(true);
}

Board::Board(BoardMemory memory, BoardConfig config)
    : memory_(std::move(memory)),
      config_(std::move(config)),
      mail_(memory_, segments_, {.rank = config_.rank, .labels = config_.labels, .group = config_.group}) {
  if (config_.ranks_are_processes) {
    memory_.bell(rank()).pid_space.store(pid_space());
    memory_.bell(rank()).pid.store(getpid());
  }
}

bool Board::reached(const Piece& p, int rank, Phase phase) const {
  return entry(p, rank).state.load() >= static_cast<uint64_t>(p.number + 1) * 4 + static_cast<uint64_t>(phase);
}

bool Board::all_reached(const Piece& p, Phase phase) const {
  for (int r = 0; r < size(); ++r)
    if (!reached(p, r, phase)) return false;
  return true;
}

void Board::set_state(const Piece& p, Phase phase) {
  entry(p, rank()).state.store(static_cast<uint64_t>(p.number + 1) * 4 + static_cast<uint64_t>(phase));
  posted_ = true;
}

bool Board::slot_is_free(int64_t number) const {
  if (number < kBoardSlots) return true;
  const Piece& before = pieces_[static_cast<size_t>(number % kBoardSlots)];
  return before.at == Piece::At::finished && all_reached(before, Phase::finished);
}

int64_t Board::start(BoardTask task) {
  CHECK(task.n >= 0, "%s of %lld elements", board_op_name(task.op), static_cast<long long>(task.n));
  CHECK(task.root >= 0 && task.root < size(), "root %d of %d ranks", task.root, size());
  const bool dealt = task.op == BoardOp::reduce_scatter || task.op == BoardOp::all_gather;
  CHECK(static_cast<int>(task.parts.size()) == size() || (!dealt && task.parts.empty()), "%s of %d parts for %d ranks",
        board_op_name(task.op), static_cast<int>(task.parts.size()), size());
  Request r;
  r.id = next_request_++;
  r.task = std::move(task);
  choose_way(r);
  r.first_piece = n_pieces_;
  r.n_pieces = r.task.n == 0 ? 1 : (r.task.n + r.piece_n - 1) / r.piece_n;
  n_pieces_ += r.n_pieces;
  requests_.push_back(std::move(r));
  step();
  return next_request_ - 1;
}

void Board::release(int64_t id) {
  if (finished(id)) return;
  request(id).task.held = false;
  step();
}

bool Board::finished(int64_t id) const {
  CHECK(id >= 0 && id < next_request_, "request %lld was not started here", static_cast<long long>(id));
  return id < first_request_ || request(id).n_finished == request(id).n_pieces;
}

bool Board::enter_pieces() {
  bool moved = false;
  while (entered_pieces_ < n_pieces_ && slot_is_free(entered_pieces_)) {
    while (entered_pieces_ >= request(entering_request_).first_piece + request(entering_request_).n_pieces)
      ++entering_request_;
    const Request& r = request(entering_request_);
    Piece& p = pieces_[static_cast<size_t>(entered_pieces_ % kBoardSlots)];
    p.number = entered_pieces_++;
    p.request = r.id;
    p.begin = (p.number - r.first_piece) * r.piece_n;
    p.n = std::min(r.piece_n, r.task.n - p.begin);
    p.at = Piece::At::entered;
    moved = true;
  }
  return moved;
}

bool Board::advance(Piece& p) {
  using At = Piece::At;
  Request& r = request(p.request);
  bool moved = false;
  if (p.at == At::entered && !r.task.held) {
    post(p, r);
    p.at = At::posted;
    moved = true;
  }
  if (p.at == At::posted && answer(p, r)) moved = true;
  if (p.at == At::reduced && all_reached(p, Phase::reduced)) {
    collect(p, r);
    set_state(p, Phase::finished);
    p.at = At::finished;
    ++r.n_finished;
    return true;
  }
  // Peers read this rank's own memory: it is given back when all of them are through.
  if (p.at == At::answered && all_reached(p, Phase::finished)) {
    p.at = At::finished;
    ++r.n_finished;
    return true;
  }
  return moved;
}

bool Board::step() {
  bool moved = mail_.step();
  moved = enter_pieces() || moved;
  for (int64_t i = oldest_piece_; i < entered_pieces_; ++i) {
    Piece& p = pieces_[static_cast<size_t>(i % kBoardSlots)];
    if (p.at != Piece::At::finished && advance(p)) moved = true;
  }
  while (oldest_piece_ < entered_pieces_ &&
         pieces_[static_cast<size_t>(oldest_piece_ % kBoardSlots)].at == Piece::At::finished)
    ++oldest_piece_;
  while (!requests_.empty() && requests_.front().n_finished == requests_.front().n_pieces) {
    requests_.pop_front();
    ++first_request_;
    entering_request_ = std::max(entering_request_, first_request_);
  }
  if (posted_) ring_all();
  return moved;
}

void Board::ring_all() {
  posted_ = false;
  for (int r = 0; r < size(); ++r)
    if (r != rank()) ring(memory_.bell(r));
}

void Board::look_for_dead_peers() const {
  if (config_.health && config_.health->failed.load()) {
    std::lock_guard lock(config_.health->mutex);
    fail(ErrorKind::runtime, "{}: gave up, because {}", config_.group, config_.health->reason);
  }
  if (!config_.ranks_are_processes) return;
  for (int r = 0; r < size(); ++r) {
    const int pid = memory_.bell(r).pid.load();
    if (pid > 0 && memory_.bell(r).pid_space.load() == memory_.bell(rank()).pid_space.load() && kill(pid, 0) != 0 &&
        errno == ESRCH)
      fail(ErrorKind::runtime, "{}: {} (process {}) has died; its own output above says why", config_.group, label(r),
           pid);
  }
}

void Board::wait(int64_t id, double timeout_s) {
  if (finished(id)) return;
  wait_for([&] { return finished(id); }, timeout_s, [&] { return describe(request(id)) + ": " + blocked_on(id); });
}

void Board::wait_mail(int64_t id, double timeout_s) {
  if (mail_.done(id)) return;
  mail_.check_can_end(id);
  wait_for([&] { return mail_.done(id); }, timeout_s, [&] { return mail_.complaint(id); });
}

void fail_waiting(const std::string& complaint, double timeout_s) {
  fail(ErrorKind::runtime,
       "{} within {}; look whether that rank still runs and whether all ranks call the same operations in the same "
       "order",
       complaint, format_seconds(timeout_s));
}

void Board::exchange(const void* mine, void* all, int64_t bytes, double timeout_s) {
  BoardTask task{.op = BoardOp::all_gather, .data = all, .part = mine, .n = bytes * size()};
  for (int r = 0; r < size(); ++r) task.parts.push_back({r * bytes, bytes});
  run(std::move(task), timeout_s);
}

std::string Board::blocked_on(int64_t id) const {
  const Request& r = request(id);
  for (int64_t number = oldest_piece_; number < r.first_piece + r.n_pieces; ++number) {
    // A piece that has no slot yet waits for what holds its slot.
    const bool entered = number < entered_pieces_;
    const Piece& p = pieces_[static_cast<size_t>(number % kBoardSlots)];
    if (entered && p.at == Piece::At::finished) continue;
    const Phase needed = !entered || p.at == Piece::At::answered ? Phase::finished
                         : p.at == Piece::At::reduced            ? Phase::reduced
                                                                 : Phase::posted;
    for (int peer = 0; peer < size(); ++peer)
      if (peer != rank() && !reached(p, peer, needed))
        return label(peer) + (reached(p, peer, Phase::posted) ? " arrived and did not finish" : " did not arrive");
  }
  return "its peers did not finish";
}

}  // namespace rw
