// Communicators. Size 1 is SelfComm, so nobody asks `if (size > 1)`. Ranks are threads (ThreadComm, tests), or
// processes (MpiComm). Every wait has a timeout and names the peer it waited for.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/dtype.h"

namespace rw {

enum class ReduceOp { sum, max, min };

// Memory that collectives can work on in place because the ranks of a node share it; plain memory where they do not.
struct SharedBuffer {
  void* data = nullptr;
  int64_t bytes = 0;
  std::shared_ptr<void> owner;  // keeps the mapping alive (shared: peers' mappings and requests outlive either end)
};

// An operation under way. Collectives of one Comm are started by all ranks in the same order. A default request is
// done.
struct Request {
  int64_t id = -1;
  bool mail = false;  // a message (send_start, recv_start), numbered apart from the collectives
};

// How elements are dealt out to ranks: rank r has [cuts[r], cuts[r+1]); size + 1 ascending offsets, parts may be empty.
// What lies before the first and behind the last is nobody's and is not touched. The calls copy the offsets.
using Cuts = std::span<const int64_t>;
// n elements in equal parts, as near as can be: cut r is n * r / ranks.
std::vector<int64_t> even_cuts(int64_t n, int ranks);

// Messages from one rank of a communicator to another.
struct MessageEdge {
  int from = 0, to = 0;
  auto operator<=>(const MessageEdge&) const = default;
};

// Where a rank stands, whatever group it is in.
struct Placement {
  int32_t rank = 0;  // in the world
  int32_t node = 0;  // see Comm::places
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;  // "self", "thread", "mpi/shm", "mpi", "meta": for logs and run.json
  virtual std::vector<std::string> hosts() const = 0;  // (size) host name of each rank
  // (size) of each rank. Ranks of one node share memory; the world's nodes are numbered from 0 in the order of their
  // lowest ranks.
  virtual std::vector<Placement> places() const = 0;
  std::vector<int> nodes() const;        // (size) node of each rank
  std::vector<int> world_ranks() const;  // (size) rank in the world of each rank

  // Collective: all ranks ask for the same number of bytes (64-byte aligned, zeroed). Passing it, or a part of it, to
  // the operations of this Comm saves the staging copies (2 to 4 times faster reductions on one node). A reduction
  // or all_gather gets such memory as its `data` on all ranks or on none; a message read from it needs it kept at both
  // ends. Where the ranks share no memory it is private, which works and copies; so does another Comm's.
  virtual SharedBuffer allocate(int64_t bytes) = 0;

  // Memory beyond allocate()'s own that this process maps for it: the other ranks' buffers, mailboxes and stages. What
  // of it was touched counts in the process's resident memory.
  virtual int64_t mapped_bytes() const { return 0; }

  // data(n) of every rank <- the reduction over ranks, of f32, f64, i64, and sums of bf16 and f16 (added in f32,
  // rounded once): the same bits on all ranks, and, for the same sizes, in every run. Sums run over ranks 0, 1, 2, ...
  // on one node; over several nodes they are the sum, in the order of the nodes' lowest ranks, of each node's sum.
  // `_start` returns at once; the buffer must not be touched until wait(). progress() moves started requests forward
  // and never blocks: call it between kernels. Requests may be waited for in any order.
  virtual Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) = 0;
  // In place: afterwards this rank's part of data holds the sum over ranks, with all_reduce's bits; the rest of data is
  // scratch. Same types as all_reduce.
  virtual Request reduce_scatter_start(void* data, Cuts cuts, DType t) = 0;
  // data <- every rank's part of it. `part` is this rank's, n = cuts[rank+1] - cuts[rank]; it may lie at its place.
  virtual Request all_gather_start(const void* part, void* data, Cuts cuts, DType t) = 0;
  // Messages of a pair of ranks arrive in the order sent; a receive whose size or tag is not the next message's is an
  // Error. Neither waits for the peer; the memory must stay as it is until wait(). A rank may send to itself: waiting
  // for such a send never blocks. Of two ranks that swap large messages one must start its receive before it waits.
  virtual Request send_start(const void* data, int64_t bytes, int peer, int tag) = 0;
  virtual Request recv_start(void* data, int64_t bytes, int peer, int tag) = 0;
  // Collective, the same on all ranks, before messages go along these edges: makes them fast where that takes
  // preparation (device memory, nccl_comm.h).
  virtual void prepare_messages(std::span<const MessageEdge>) {}
  virtual void progress() = 0;
  // Error{runtime} when one is known to be gone. From any thread.
  virtual void look_for_dead_peers() {}
  virtual bool done(Request request) = 0;  // after some progress()
  virtual void wait(Request request) = 0;
  // Whether wait() may block. Where the data lies on a device, the device waits and the host goes on. A default request
  // stands for prepared messages.
  virtual bool wait_blocks(Request) { return true; }
  // Whether the device did what wait() made it wait for.
  virtual bool device_did(Request) { return true; }
  // Seconds that the device stood still in waits that are over, since the last call. Called where the host has just
  // waited for the device.
  virtual double take_stalled_s() { return 0; }
  // Seconds that operations on device memory took there, from where they began on the device to their end, added up:
  // of those that are over, since the last call. Called as take_stalled_s().
  virtual double take_device_s() { return 0; }
  // What a device has recorded of this communicator's operations: `replay` starts it, on all ranks alike. It has
  // timeout_s() like an operation.
  virtual void replay(const std::function<void()>& replay) { replay(); }

  void all_reduce(void* data, int64_t n, DType t, ReduceOp op) { wait(all_reduce_start(data, n, t, op)); }
  void reduce_scatter(void* data, Cuts cuts, DType t) { wait(reduce_scatter_start(data, cuts, t)); }
  void all_gather(const void* part, void* data, Cuts cuts, DType t) { wait(all_gather_start(part, data, cuts, t)); }
  // Equal parts: data[r*bytes..] <- shard of rank r. shard may lie at its place in data.
  void all_gather(const void* shard, void* data, int64_t bytes);
  void send(const void* data, int64_t bytes, int peer, int tag) { wait(send_start(data, bytes, peer, tag)); }
  void recv(void* data, int64_t bytes, int peer, int tag) { wait(recv_start(data, bytes, peer, tag)); }
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
  virtual void barrier() = 0;
  // Collective: ranks with the same color (>= 0) form a new Comm, ordered by (key, rank).
  virtual std::unique_ptr<Comm> split(int color, int key) = 0;

  void set_timeout(double seconds) { timeout_s_ = seconds; }
  double timeout_s() const { return timeout_s_; }

  // Built on the above.
  int64_t all_reduce_value(int64_t v, ReduceOp op);
  double all_reduce_value(double v, ReduceOp op);
  std::string broadcast_text(const std::string& text, int root);
  std::vector<std::string> gather_text(const std::string& text);  // of every rank, on every rank

 protected:
  double timeout_s_ = 300.0;
};

std::unique_ptr<Comm> make_self_comm(Placement place = {});

// Runs `body(comm)` on `n` threads, each with its rank of one communicator. The first exception is rethrown after all
// threads ended; a throwing rank makes the others' waits fail at once instead of timing out. nodes() counts each
// `ranks_per_node` ranks as a node (0: all of them).
void run_thread_ranks(int n, const std::function<void(Comm&)>& body, int ranks_per_node = 0);

// MPI, initialised on first use and finalised at exit. Under a launcher (OMPI_COMM_WORLD_SIZE or PMIX_RANK set) this is
// the world; otherwise SelfComm, without touching MPI (MPI_Init alone costs 0.4 s).
struct AllReducePolicy;  // steps_comm.h
struct WorldOptions {
  int ranks_per_node = 0;  // consecutive ranks, of one host, that count as a node; 0: those that share memory
  // Which way all_reduce takes, in the world and in its groups; null: that of the communicator.
  std::shared_ptr<const AllReducePolicy> all_reduce = nullptr;
};
std::unique_ptr<Comm> make_world_comm(const WorldOptions& options = {});
// Ends all ranks of the job with this exit code, after an error that only one rank saw. Does not return.
[[noreturn]] void abort_world(int exit_code);

}  // namespace rw
