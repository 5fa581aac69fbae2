// NCCL's functions, as far as we call them, in the simulator: operations are work on a stream that is polled until the
// host communicator that each communicator is lent has done them. They go through staging memory of the host, in the
// host communicator's order of additions.
//
// NCCL's rules for ends are here too, at their strictest: ncclCommAbort() blocks while a recorded step holds an
// operation of the communicator, and while another communicator of the rank, not aborted with it, has an operation
// under way.
#include "kernels/simt/runtime.cuh"
// The simulator's header comes first: it defines the toolkit's words away.
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/comm/nccl_backend.h"
#include "libcore/comm/nccl_simt.h"

namespace rw::nccl {

namespace {

constexpr double kLookEveryS = 0.01;
constexpr int kDefaultCtas = 16;  // of messages between two GPUs of a node with NVLink

struct Member;

// Of the thread that makes communicators: its rank. `look` is called by whichever thread polls their work.
struct Lookouts {
  std::vector<const std::function<void()>*> all;
  double last_s = 0;
  bool is_looking = false;
  std::mutex mutex;  // of what another thread aborts
  std::vector<std::weak_ptr<Member>> members;
  std::vector<std::shared_ptr<Member>> aborted;  // their host communicators are this thread's to end
  std::atomic<int64_t> message_ctas{0}, most_message_ctas{0}, registered{0};
  std::atomic<int64_t> n_ended{0};  // of what aborts wait for
  int to_refuse = 0;

  void end_one() {
    ++n_ended;
    n_ended.notify_all();
  }

  void look() {
    if (is_looking || now_s() - last_s < kLookEveryS) return;
    is_looking = true;
    for (const auto* look : std::vector(all)) (*look)();
    is_looking = false;
    last_s = now_s();
  }
};
const std::shared_ptr<Lookouts>& lookouts() {
  thread_local const auto of_thread = std::make_shared<Lookouts>();
  return of_thread;
}

}  // namespace

struct Lookout::State {
  std::function<void()> look;
  std::shared_ptr<Lookouts> among;
};

namespace {

std::unique_ptr<Comm>& lent() {
  thread_local std::unique_ptr<Comm> of_thread;
  return of_thread;
}

enum class Kind { all_reduce, reduce_scatter, reduce, all_gather, broadcast, send, recv };

struct Call {
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  int64_t n = 0;
  DType t = DType::u8;
  ReduceOp op = ReduceOp::sum;
  int peer = 0;  // or root
};

// A call under way: what it moves lies in `data`.
struct Moving {
  std::vector<std::byte> data;
  Request request;
};

// A communicator's rank; shared with the work it put on streams.
struct Member {
  std::unique_ptr<Comm> host;
  std::shared_ptr<Lookouts> lookouts;
  int ctas = kDefaultCtas;
  std::atomic<bool> is_aborted{false};
  std::atomic<int64_t> n_recorded{0};   // operations in recorded steps
  std::atomic<int64_t> n_under_way{0};  // operations that began
  std::string error;
  std::vector<std::vector<Moving>> left;  // by aborted work: the host communicator may still hold its addresses

  Moving start(const Call& c) const;
  void finish(const Call& c, const Moving& moving) const;
  std::vector<int64_t> all_of_root(const Call& c) const {
    std::vector<int64_t> cuts(static_cast<size_t>(host->size()) + 1, 0);
    std::fill(cuts.begin() + c.peer + 1, cuts.end(), c.n);
    return cuts;
  }
};

Moving Member::start(const Call& c) const {
  const int64_t width = dtype_bytes(c.t), bytes = c.n * width, ranks = host->size();
  const bool holds_all = c.kind == Kind::reduce_scatter || c.kind == Kind::all_gather;
  Moving m;
  m.data.resize(static_cast<size_t>(bytes * (holds_all ? ranks : 1)));
  std::byte* data = m.data.data();
  const auto copy_in = [&](std::byte* to, int64_t n) { std::memcpy(to, c.from, static_cast<size_t>(n)); };
  switch (c.kind) {
    case Kind::all_reduce:
      copy_in(data, bytes);
      m.request = host->all_reduce_start(data, c.n, c.t, c.op);
      break;
    case Kind::reduce_scatter:
      copy_in(data, bytes * ranks);
      m.request = host->reduce_scatter_start(data, even_cuts(c.n * ranks, static_cast<int>(ranks)), c.t);
      break;
    case Kind::reduce:
      copy_in(data, bytes);
      m.request = host->reduce_scatter_start(data, all_of_root(c), c.t);
      break;
    case Kind::all_gather: {
      std::byte* part = data + host->rank() * bytes;
      copy_in(part, bytes);
      m.request = host->all_gather_start(part, data, even_cuts(c.n * ranks, static_cast<int>(ranks)), c.t);
      break;
    }
    case Kind::broadcast:
      if (host->rank() == c.peer) copy_in(data, bytes);
      m.request = host->all_gather_start(data, data, all_of_root(c), c.t);
      break;
    case Kind::send:
      copy_in(data, bytes);
      m.request = host->send_start(data, bytes, c.peer, 0);
      break;
    case Kind::recv: m.request = host->recv_start(data, bytes, c.peer, 0); break;
  }
  return m;
}

void Member::finish(const Call& c, const Moving& m) const {
  if (c.kind == Kind::send || (c.kind == Kind::reduce && host->rank() != c.peer)) return;
  const auto part = static_cast<size_t>(c.n * dtype_bytes(c.t));
  if (c.kind == Kind::reduce_scatter) std::memcpy(c.to, m.data.data() + static_cast<size_t>(host->rank()) * part, part);
  else std::memcpy(c.to, m.data.data(), m.data.size());
}

// Adds to a count for as long as it lives.
class Counted {
 public:
  Counted(std::shared_ptr<void> owner, Lookouts& rank, std::atomic<int64_t>& count, int64_t n)
      : owner_(std::move(owner)), rank_(rank), count_(count), n_(n) {
    count_ += n_;
  }
  ~Counted() {
    count_ -= n_;
    rank_.end_one();
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::shared_ptr<void> owner_;  // of the rank and the count
  Lookouts& rank_;
  std::atomic<int64_t>& count_;
  int64_t n_;
};

// The calls of a group, together. What counts is held by value: a recorded step begins each replay with it as it is
// here.
struct Work {
  std::shared_ptr<Member> member;
  std::vector<Call> calls;
  std::shared_ptr<Counted> recorded = nullptr;  // in a graph: counted as long as that lives
  std::vector<Moving> moving = {};
  std::shared_ptr<Counted> under_way = nullptr, ctas = nullptr;

  bool operator()() {
    Member& m = *member;
    if (m.is_aborted) {
      under_way = ctas = nullptr;
      m.left.push_back(std::move(moving));
      return true;
    }
    if (m.error.empty()) {
      try {
        if (move()) return true;
        m.host->look_for_dead_peers();
      } catch (const std::exception& e) {
        m.error = e.what();
      }
    }
    m.lookouts->look();
    return false;
  }

  bool move() {
    Member& m = *member;
    if (moving.empty()) begin();
    m.host->progress();
    for (const Moving& part : moving)
      if (!m.host->done(part.request)) return false;
    for (size_t i = 0; i < calls.size(); ++i) m.finish(calls[i], moving[i]);
    under_way = ctas = nullptr;
    return true;
  }

  void begin() {
    for (const Call& c : calls) moving.push_back(member->start(c));
    Lookouts& rank = *member->lookouts;
    under_way = std::make_shared<Counted>(member, rank, member->n_under_way, 1);
    if (calls[0].kind != Kind::send && calls[0].kind != Kind::recv) return;
    ctas = std::make_shared<Counted>(member->lookouts, rank, rank.message_ctas, member->ctas);
    rank.most_message_ctas = std::max(rank.most_message_ctas.load(), rank.message_ctas.load());
  }
};

// Whether an abort of these returns.
bool may_abort(const std::vector<std::shared_ptr<Member>>& members) {
  for (const auto& m : members)
    if (m->n_recorded > 0) return false;
  Lookouts& rank = *members[0]->lookouts;
  const std::lock_guard lock(rank.mutex);
  return std::none_of(rank.members.begin(), rank.members.end(), [](const std::weak_ptr<Member>& other) {
    const auto m = other.lock();
    return m != nullptr && !m->is_aborted && m->n_under_way > 0;
  });
}

void abort_together(std::vector<std::shared_ptr<Member>> members) {
  if (members.empty()) return;
  const auto rank = members[0]->lookouts;
  // Without end, as NCCL's own: who calls it bounds its patience.
  for (int64_t seen = rank->n_ended; !may_abort(members); seen = rank->n_ended) rank->n_ended.wait(seen);
  const std::lock_guard lock(rank->mutex);
  if (!rank->all.empty()) std::move(members.begin(), members.end(), std::back_inserter(rank->aborted));
}

DType type_of(ncclDataType_t t) {
  switch (t) {
    case ncclUint8: return DType::u8;
    case ncclInt64: return DType::i64;
    case ncclFloat16: return DType::f16;
    case ncclBfloat16: return DType::bf16;
    case ncclFloat32: return DType::f32;
    case ncclFloat64: return DType::f64;
    default: break;
  }
  CHECK(false, "NCCL's type %d", static_cast<int>(t));
}

ReduceOp op_of(ncclRedOp_t op) {
  CHECK(op == ncclSum || op == ncclMax || op == ncclMin, "NCCL's reduction %d", static_cast<int>(op));
  return op == ncclSum ? ReduceOp::sum : op == ncclMax ? ReduceOp::max : ReduceOp::min;
}

}  // namespace

const char* backend_name() { return "nccl/simt"; }
void lend_host(Comm& host, int color, int key) { lent() = host.split(color, key); }
void move_streams() { simt::poll_streams(); }

Lookout::Lookout(std::function<void()> look) : state_(std::make_unique<State>(State{std::move(look), lookouts()})) {
  state_->among->all.push_back(&state_->look);
}
Lookout::~Lookout() {
  std::vector<std::shared_ptr<Member>> aborted;
  const std::lock_guard lock(state_->among->mutex);
  std::erase(state_->among->all, &state_->look);
  std::swap(aborted, state_->among->aborted);
}

void refuse_registrations(int n) { lookouts()->to_refuse = n; }
int64_t registered_blocks() { return lookouts()->registered; }
int64_t most_message_ctas() { return lookouts()->most_message_ctas; }

}  // namespace rw::nccl

using namespace rw::nccl;  // NOLINT: the functions below are C's

struct ncclComm {
  std::shared_ptr<Member> member;
};

namespace {

struct Group {
  int depth = 0;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Call> calls;
  std::vector<std::shared_ptr<Member>> to_abort;
};
Group& group() {
  thread_local Group of_thread;
  return of_thread;
}

void enqueue(const std::shared_ptr<Member>& member, cudaStream_t stream, std::vector<Call> calls) {
  Work work{.member = member, .calls = std::move(calls)};
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(stream, &status);
  if (status != cudaStreamCaptureStatusNone)
    work.recorded = std::make_shared<Counted>(member, *member->lookouts, member->n_recorded, 1);
  rw::simt::enqueue_polled(stream, std::move(work));
}

ncclResult_t put(ncclComm_t comm, cudaStream_t stream, const Call& call) {
  Group& g = group();
  if (g.depth == 0) {
    enqueue(comm->member, stream, {call});
    return ncclSuccess;
  }
  CHECK(g.calls.empty() || (g.comm == comm && g.stream == stream), "a group of one communicator and one stream");
  g.comm = comm;
  g.stream = stream;
  g.calls.push_back(call);
  return ncclSuccess;
}

int64_t count(size_t n) { return static_cast<int64_t>(n); }

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  *id = {};
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId, int rank, ncclConfig_t* config) {
  std::unique_ptr<rw::Comm> host = std::move(lent());
  if (host == nullptr || host->size() != ranks || host->rank() != rank) return ncclInvalidUsage;
  const ncclConfig_t untouched = NCCL_CONFIG_INITIALIZER;
  const bool is_limited = config->maxCTAs != NCCL_CONFIG_UNDEF_INT;
  if (config->size != untouched.size || config->magic != untouched.magic || config->version != untouched.version ||
      config->blocking != 0 || (is_limited && config->maxCTAs < 1))
    return ncclInvalidArgument;
  const auto member = std::make_shared<Member>();
  member->host = std::move(host);
  member->lookouts = lookouts();
  if (is_limited) member->ctas = std::min(kDefaultCtas, config->maxCTAs);
  const std::lock_guard lock(member->lookouts->mutex);
  std::erase_if(member->lookouts->members, [](const std::weak_ptr<Member>& m) { return m.expired(); });
  member->lookouts->members.push_back(member);
  *comm = new ncclComm{member};
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->member->is_aborted = true;
  comm->member->lookouts->end_one();
  group().to_abort.push_back(std::move(comm->member));
  delete comm;
  if (group().depth == 0) abort_together(std::exchange(group().to_abort, {}));
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  *error = comm->member->error.empty() ? ncclSuccess : ncclRemoteError;
  return ncclSuccess;
}
const char* ncclGetLastError(ncclComm_t comm) { return comm == nullptr ? "" : comm->member->error.c_str(); }
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInvalidUsage: return "invalid usage";
    default: return "unknown error";
  }
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  if (cudaMalloc(data, bytes) == cudaSuccess) return ncclSuccess;
  cudaGetLastError();
  return ncclUnhandledCudaError;
}
ncclResult_t ncclMemFree(void* data) { return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError; }
ncclResult_t ncclCommRegister(const ncclComm_t comm, void* data, size_t, void** handle) {
  Lookouts& rank = *comm->member->lookouts;
  if (rank.to_refuse > 0) {
    --rank.to_refuse;
    return ncclSystemError;
  }
  ++rank.registered;
  *handle = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t comm, void*) {
  --comm->member->lookouts->registered;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Group& g = group();
  if (--g.depth > 0) return ncclSuccess;
  abort_together(std::exchange(g.to_abort, {}));
  if (!g.calls.empty()) enqueue(g.comm->member, g.stream, std::exchange(g.calls, {}));
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(comm, stream,
             {.kind = Kind::all_reduce, .from = from, .to = to, .n = count(n), .t = type_of(t), .op = op_of(op)});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, size_t n, ncclDataType_t t, ncclRedOp_t, ncclComm_t comm,
                               cudaStream_t stream) {
  return put(comm, stream, {.kind = Kind::reduce_scatter, .from = from, .to = to, .n = count(n), .t = type_of(t)});
}
ncclResult_t ncclReduce(const void* from, void* to, size_t n, ncclDataType_t t, ncclRedOp_t, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return put(comm, stream,
             {.kind = Kind::reduce, .from = from, .to = to, .n = count(n), .t = type_of(t), .peer = root});
}
ncclResult_t ncclAllGather(const void* from, void* to, size_t n, ncclDataType_t t, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(comm, stream, {.kind = Kind::all_gather, .from = from, .to = to, .n = count(n), .t = type_of(t)});
}
ncclResult_t ncclBroadcast(const void* from, void* to, size_t n, ncclDataType_t t, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return put(comm, stream,
             {.kind = Kind::broadcast, .from = from, .to = to, .n = count(n), .t = type_of(t), .peer = root});
}
ncclResult_t ncclSend(const void* from, size_t n, ncclDataType_t t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return put(comm, stream, {.kind = Kind::send, .from = from, .n = count(n), .t = type_of(t), .peer = peer});
}
ncclResult_t ncclRecv(void* to, size_t n, ncclDataType_t t, int peer, ncclComm_t comm, cudaStream_t stream) {
  return put(comm, stream, {.kind = Kind::recv, .to = to, .n = count(n), .t = type_of(t), .peer = peer});
}

}  // extern "C"
