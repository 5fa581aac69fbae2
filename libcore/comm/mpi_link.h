// The part of MPI that the communicators use: messages between the processes of a group that start at once and are
// asked later whether they are done, and the making of groups. No MPI type gets out of mpi_link.cpp. One thread per
// process calls (MPI_THREAD_FUNNELED).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/dtype.h"
#include "libcore/comm/comm.h"

namespace rw {

// Messages under way. They hold pointers into the caller's memory.
class Transfers {
 public:
  Transfers();
  Transfers(Transfers&&) noexcept;
  Transfers& operator=(Transfers&&) noexcept;
  ~Transfers();
  bool done();         // moves MPI forward; Error{runtime} when a message failed
  int pending_peer();  // of a message that is not done; -1 when all are

 private:
  friend class MpiLink;
  struct State;
  std::unique_ptr<State> state_;
};

class MpiLink {
 public:
  // All processes of the job. Initialises MPI on first use and finalises it when the process exits.
  static std::shared_ptr<MpiLink> world();

  struct State;
  explicit MpiLink(std::unique_ptr<State> state);
  ~MpiLink();

  int rank() const;
  int size() const;

  // Any length. Messages of a pair with one tag arrive in the order sent.
  void start_send(Transfers& transfers, const void* data, int64_t bytes, int peer, int tag);
  void start_recv(Transfers& transfers, void* data, int64_t bytes, int peer, int tag);
  struct Probe {
    int tag;
    int64_t bytes;  // at most kMaxMessage: longer ones come in parts
  };
  static constexpr int64_t kMaxMessage = 1 << 30;
  // The MPI library's own all_reduce, in place, of f32, f64 and i64. Collective; it orders its sums as it likes.
  struct Reduction {
    void* data;
    int64_t n;
    DType t;
    ReduceOp op;
  };
  void start_all_reduce(Transfers& transfers, const Reduction& r);
  std::optional<Probe> probe(int peer);  // the next message from peer, if it is there

  // Collective and blocking, without a timeout: for setting up, while all ranks are known to be there.
  void all_gather(const void* mine, void* all, int64_t bytes);
  std::shared_ptr<MpiLink> split(int color, int key);  // null for a negative color
  std::shared_ptr<MpiLink> same_host();                // the ranks of this host, in order
  std::shared_ptr<MpiLink> duplicate();                // the same ranks, apart from this link's messages

 private:
  std::unique_ptr<State> state_;
};

bool under_launcher();
// After MPI_Init: ends the job. Before: returns.
void abort_if_initialized(int exit_code);

}  // namespace rw
