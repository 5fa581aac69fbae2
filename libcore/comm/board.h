// Collectives and messages between ranks that share memory (threads, or processes of one node).
//
// Every collective is cut into pieces that all ranks number alike, because they call the same operations in the same
// order with the same sizes. A piece takes slot (number mod kBoardSlots). Each rank posts what it has for the piece,
// where that lies and how far it is; who sees that all peers are far enough does its own next part. Nobody waits
// inside: step() does what can be done now.
//
//   all_reduce      small: every rank copies its data to its stage, then reduces all stages itself (one round of
//   waiting).
//                   in place: every rank reduces its slice over all ranks' buffers into all of them.
//                   staged: copies in, reduces its slice into its own stage, collects the others' slices from theirs.
//   reduce_scatter  reduces what the piece holds of its part over all ranks' data or stages, into its own data.
//   all_gather      copies what the piece holds of the peers' parts from their data or stages.
//   broadcast       copies from the root's data or stage; with parts, its own part alone.
//   barrier         all have posted.
//
// Reductions run over ranks 0, 1, ... (reduce.h), whoever computes them: the result's bits depend on the data alone.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "libcore/comm/board_mail.h"
#include "libcore/comm/board_memory.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/patience.h"
#include "libcore/comm/reduce.h"
#include "libcore/comm/segment.h"

namespace rw {

enum class BoardOp : uint8_t { barrier, all_reduce, reduce_scatter, all_gather, broadcast };
const char* board_op_name(BoardOp op);

// "<complaint> within <timeout>; look whether ..."
[[noreturn]] void fail_waiting(const std::string& complaint, double timeout_s);

struct BoardTask {
  BoardOp op = BoardOp::barrier;
  void* data = nullptr;        // (n); of all_reduce, reduce_scatter and broadcast also the input
  const void* part = nullptr;  // all_gather: this rank's part, may lie at its place in data
  int64_t n = 0;               // elements of t
  DType t = DType::u8;
  ReduceOp reduce = ReduceOp::sum;
  std::vector<Slice> parts =
      {};  // (ranks) of reduce_scatter, all_gather and, if given, broadcast: disjoint ranges of n
  int root = 0;
  bool held = false;  // do not post before release(): the data is not there yet (the order of pieces is kept)
};

// Why peers must not be waited for any more; shared by all boards of a job whose ranks are threads.
struct JobHealth {
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string reason;
  void fail_once(const std::string& why);  // the first reason stays
};

struct BoardConfig {
  int rank = 0;
  std::vector<std::string> labels;    // (ranks) "rank 1 on host h2", for errors
  std::string group;                  // "thread", "mpi/shm"
  std::shared_ptr<JobHealth> health;  // null for processes
  bool ranks_are_processes = false;   // then a peer's death is noticed by its pid
  bool may_spin = true;
};

class Board {
 public:
  // `memory` is zeroed or already in use by peers that were faster.
  Board(BoardMemory memory, BoardConfig config);

  int rank() const { return config_.rank; }
  int size() const { return static_cast<int>(config_.labels.size()); }
  const std::string& group() const { return config_.group; }
  const std::string& label(int rank) const { return config_.labels[static_cast<size_t>(rank)]; }
  const std::shared_ptr<JobHealth>& health() const { return config_.health; }
  bool may_spin() const { return config_.may_spin; }
  SegmentTable& segments() { return segments_; }
  int64_t mapped_bytes() const { return BoardMemory::bytes(size()) + segments_.bytes() * (size() - 1); }

  // Collective, in the same order on all ranks. Returns at once; the memory must stay as it is until finished().
  int64_t start(BoardTask task);
  void release(int64_t id);  // of a held task
  bool finished(int64_t id) const;
  bool step();  // does what can be done; true when something moved
  void wait(int64_t id, double timeout_s);
  void run(BoardTask task, double timeout_s) { wait(start(std::move(task)), timeout_s); }
  // all (ranks, bytes) <- mine (bytes) of every rank.
  void exchange(const void* mine, void* all, int64_t bytes, double timeout_s);
  std::string blocked_on(int64_t id) const;  // "rank 1 on host h2 did not arrive"
  void look_for_dead_peers() const;          // throws when one failed or is gone

  // Messages (board_mail.h); step() moves them too.
  BoardMail& mail() { return mail_; }
  void wait_mail(int64_t id, double timeout_s);

 private:
  enum class Way : uint8_t { small, in_place, staged };
  struct Request {
    int64_t id = 0, first_piece = 0, n_pieces = 0, n_finished = 0, piece_n = 0;  // piece_n: elements
    BoardTask task;
    Way way = Way::staged;
    Place place;  // of the data this rank offers, when in place
    uint64_t parts_hash = 0;
  };
  struct Piece {
    int64_t number = -1, request = 0, begin = 0, n = 0;  // elements [begin, begin + n) of the request
    enum class At : uint8_t { entered, posted, reduced, answered, finished } at = At::finished;
  };

  int64_t slot(const Piece& p) const { return p.number % kBoardSlots; }
  Entry& entry(const Piece& p, int rank) const { return memory_.entry(slot(p), rank); }
  Request& request(int64_t id) { return requests_[static_cast<size_t>(id - first_request_)]; }
  const Request& request(int64_t id) const { return requests_[static_cast<size_t>(id - first_request_)]; }
  bool reached(const Piece& p, int rank, Phase phase) const;
  bool all_reached(const Piece& p, Phase phase) const;
  void set_state(const Piece& p, Phase phase);
  bool slot_is_free(int64_t number) const;
  bool enter_pieces();
  bool advance(Piece& p);
  void ring_all();

  // board_steps.cpp
  void choose_way(Request& r);
  void post(Piece& p, const Request& r);
  bool answer(Piece& p, Request& r);  // after the peers posted
  void collect(Piece& p, const Request& r);
  void check_peers_agree(const Piece& p, const Request& r) const;
  bool needs_one_kind(const Request& r) const;
  const std::byte* offered(const Piece& p, int rank) const;
  void reduce_slice(const Piece& p, const Request& r);
  void reduce_part(const Piece& p, const Request& r);
  std::string describe(const Request& r) const;

  // Steps until ready(); past the timeout throws what complaint() says.
  template <typename Ready, typename Complaint>
  void wait_for(Ready ready, double timeout_s, Complaint complaint) {
    Patience patience(&memory_.bell(rank()), config_.may_spin);
    while (true) {
      const bool moved = step();
      if (ready()) return;
      if (moved) {
        patience.moved();
        continue;
      }
      patience.pause();
      if (patience.slept() || (health() && health()->failed.load())) look_for_dead_peers();
      if (patience.waited_s() > timeout_s) fail_waiting(complaint(), timeout_s);
    }
  }

  BoardMemory memory_;
  BoardConfig config_;
  SegmentTable segments_;
  BoardMail mail_;
  std::deque<Request> requests_;  // under way; ids from first_request_
  std::array<Piece, kBoardSlots> pieces_;
  int64_t first_request_ = 0, entering_request_ = 0, next_request_ = 0;
  int64_t oldest_piece_ = 0, entered_pieces_ = 0, n_pieces_ = 0;
  bool posted_ = false;
  std::vector<const void*> sources_;  // scratch of reduce_slice
  std::vector<void*> targets_;
};

}  // namespace rw
