// Communicators. Size 1 is SelfComm, so nobody asks `if (size > 1)`. Ranks are threads (ThreadComm, tests), or
// processes (MpiComm). Every wait has a timeout and names the peer it waited for.
#pragma once
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

// A collective under way. Requests of one Comm are started by all ranks in the same order.
struct Request {
  int64_t id = -1;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name() const = 0;                // "self", "thread", "mpi/shm", "mpi": for logs and run.json
  virtual std::vector<std::string> hosts() const = 0;  // (size) host name of each rank

  // Collective: all ranks ask for the same number of bytes (64-byte aligned, zeroed). Passing it, or a part of it, to
  // the operations of this Comm saves the staging copies (2 to 4 times faster reductions on one node). A reduction gets
  // such memory on all ranks or on none. Where the ranks share no memory it is private, which works and copies.
  virtual SharedBuffer allocate(int64_t bytes) = 0;

  // data(n) of every rank <- the reduction over ranks, f32, f64 or i64: the same bits on all ranks, and, for the same
  // sizes, in every run. Sums run over ranks 0, 1, 2, ... on one node; over several nodes they are the sum, in the
  // order of the nodes' lowest ranks, of each node's sum. `_start` returns at once; the buffer must not be touched
  // until wait(). progress() moves started requests forward and never blocks: call it between kernels. Requests may be
  // waited for in any order.
  virtual Request all_reduce_start(void* data, int64_t n, DType t, ReduceOp op) = 0;
  virtual void progress() = 0;
  virtual void wait(Request request) = 0;
  void all_reduce(void* data, int64_t n, DType t, ReduceOp op) { wait(all_reduce_start(data, n, t, op)); }

  // shard(n) of rank r <- sum over ranks of data[r*n .. r*n+n), in rank order. data is unchanged or scratch afterwards.
  // shard may lie at its place in data.
  virtual void reduce_scatter(const void* data, void* shard, int64_t n, DType t) = 0;
  // data[r*bytes..] <- shard of rank r. shard may lie at its place in data.
  virtual void all_gather(const void* shard, void* data, int64_t bytes) = 0;
  virtual void broadcast(void* data, int64_t bytes, int root) = 0;
  // Messages of a pair of ranks arrive in the order sent; a recv whose size or tag is not the next message's is an
  // Error. send may wait until the peer (another rank) receives: of two ranks that swap large messages one must receive
  // first.
  virtual void send(const void* data, int64_t bytes, int peer, int tag) = 0;
  virtual void recv(void* data, int64_t bytes, int peer, int tag) = 0;
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

std::unique_ptr<Comm> make_self_comm();

// Runs `body(comm)` on `n` threads, each with its rank of one communicator. The first exception is rethrown after all
// threads ended; a throwing rank makes the others' waits fail at once instead of timing out.
void run_thread_ranks(int n, const std::function<void(Comm&)>& body);

// MPI, initialised on first use and finalised at exit. Under a launcher (OMPI_COMM_WORLD_SIZE or PMIX_RANK set) this is
// the world; otherwise SelfComm, without touching MPI (MPI_Init alone costs 0.4 s).
std::unique_ptr<Comm> make_world_comm();
// Ends all ranks of the job with this exit code, after an error that only one rank saw. Does not return.
[[noreturn]] void abort_world(int exit_code);

}  // namespace rw
