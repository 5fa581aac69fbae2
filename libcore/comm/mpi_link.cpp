#include "libcore/comm/mpi_link.h"

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/check.h"
#include "libcore/base/error.h"

namespace rw {
namespace {

void expect(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(ErrorKind::runtime, "{} failed: {}", call, std::string(text, static_cast<size_t>(length)));
}

bool running() {
  int started = 0, ended = 0;
  MPI_Initialized(&started);
  MPI_Finalized(&ended);
  return started && !ended;
}

void finalize_at_exit() {
  if (running()) MPI_Finalize();
}

}  // namespace

struct Transfers::State {
  std::vector<MPI_Request> requests;
  std::vector<int> peers;
};

Transfers::Transfers() : state_(std::make_unique<State>()) {}
Transfers::Transfers(Transfers&&) noexcept = default;
Transfers& Transfers::operator=(Transfers&&) noexcept = default;
Transfers::~Transfers() = default;

bool Transfers::done() {
  int all = 0;
  expect(MPI_Testall(static_cast<int>(state_->requests.size()), state_->requests.data(), &all, MPI_STATUSES_IGNORE),
         "MPI_Testall");
  if (!all) return false;
  state_->requests.clear();
  state_->peers.clear();
  return true;
}

int Transfers::pending_peer() {
  for (size_t i = 0; i < state_->requests.size(); ++i) {
    int flag = 1;
    if (state_->requests[i] != MPI_REQUEST_NULL)
      expect(MPI_Request_get_status(state_->requests[i], &flag, MPI_STATUS_IGNORE), "MPI_Request_get_status");
    if (!flag) return state_->peers[i];
  }
  return -1;
}

struct MpiLink::State {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0, size = 1;
  bool owned = false;
};

namespace {

std::shared_ptr<MpiLink> make_link(MPI_Comm comm, bool owned) {
  if (comm == MPI_COMM_NULL) return nullptr;
  auto state = std::make_unique<MpiLink::State>();
  state->comm = comm;
  state->owned = owned;
  // Errors come back as codes, so that they end as messages of ours.
  expect(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  expect(MPI_Comm_rank(comm, &state->rank), "MPI_Comm_rank");
  expect(MPI_Comm_size(comm, &state->size), "MPI_Comm_size");
  return std::make_shared<MpiLink>(std::move(state));
}

}  // namespace

MpiLink::MpiLink(std::unique_ptr<State> state) : state_(std::move(state)) {}
MpiLink::~MpiLink() {
  if (state_->owned && running()) MPI_Comm_free(&state_->comm);
}

std::shared_ptr<MpiLink> MpiLink::world() {
  int started = 0;
  MPI_Initialized(&started);
  if (!started) {
    int provided = 0;
    expect(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_SERIALIZED)
      fail(ErrorKind::runtime, "this MPI library offers thread level {}, expected at least MPI_THREAD_SERIALIZED ({})",
           provided, static_cast<int>(MPI_THREAD_SERIALIZED));
    std::atexit(finalize_at_exit);
  }
  return make_link(MPI_COMM_WORLD, false);
}

int MpiLink::rank() const { return state_->rank; }
int MpiLink::size() const { return state_->size; }

void MpiLink::start_send(Transfers& transfers, const void* data, int64_t bytes, int peer, int tag) {
  const char* p = static_cast<const char*>(data);
  do {
    const int64_t n = std::min(bytes, kMaxMessage);
    MPI_Request request = MPI_REQUEST_NULL;
    expect(MPI_Isend(p, static_cast<int>(n), MPI_BYTE, peer, tag, state_->comm, &request), "MPI_Isend");
    transfers.state_->requests.push_back(request);
    transfers.state_->peers.push_back(peer);
    p += n;
    bytes -= n;
  } while (bytes > 0);
}

void MpiLink::start_recv(Transfers& transfers, void* data, int64_t bytes, int peer, int tag) {
  char* p = static_cast<char*>(data);
  do {
    const int64_t n = std::min(bytes, kMaxMessage);
    MPI_Request request = MPI_REQUEST_NULL;
    expect(MPI_Irecv(p, static_cast<int>(n), MPI_BYTE, peer, tag, state_->comm, &request), "MPI_Irecv");
    transfers.state_->requests.push_back(request);
    transfers.state_->peers.push_back(peer);
    p += n;
    bytes -= n;
  } while (bytes > 0);
}

std::optional<MpiLink::Probe> MpiLink::probe(int peer) {
  int there = 0;
  MPI_Status status{};
  expect(MPI_Iprobe(peer, MPI_ANY_TAG, state_->comm, &there, &status), "MPI_Iprobe");
  if (!there) return std::nullopt;
  int count = 0;
  expect(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
  return Probe{status.MPI_TAG, count};
}

void MpiLink::start_all_reduce(Transfers& transfers, const Reduction& r) {
  CHECK(r.t == DType::f32 || r.t == DType::f64 || r.t == DType::i64, "the MPI library does not add %s",
        dtype_name(r.t));
  const MPI_Datatype type = r.t == DType::f32 ? MPI_FLOAT : r.t == DType::f64 ? MPI_DOUBLE : MPI_INT64_T;
  const MPI_Op op = r.op == ReduceOp::sum ? MPI_SUM : r.op == ReduceOp::max ? MPI_MAX : MPI_MIN;
  char* p = static_cast<char*>(r.data);
  for (int64_t left = r.n; left > 0;) {
    const int64_t n = std::min(left, kMaxMessage / dtype_bytes(r.t));
    MPI_Request request = MPI_REQUEST_NULL;
    expect(MPI_Iallreduce(MPI_IN_PLACE, p, static_cast<int>(n), type, op, state_->comm, &request), "MPI_Iallreduce");
    transfers.state_->requests.push_back(request);
    transfers.state_->peers.push_back(-1);
    p += n * dtype_bytes(r.t);
    left -= n;
  }
}

void MpiLink::all_gather(const void* mine, void* all, int64_t bytes) {
  CHECK(bytes <= kMaxMessage / state_->size, "all_gather of %lld bytes while setting up",
        static_cast<long long>(bytes));
  const int n = static_cast<int>(bytes);
  expect(MPI_Allgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, state_->comm), "MPI_Allgather");
}

std::shared_ptr<MpiLink> MpiLink::split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  expect(MPI_Comm_split(state_->comm, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  return make_link(part, true);
}

std::shared_ptr<MpiLink> MpiLink::same_host() {
  MPI_Comm part = MPI_COMM_NULL;
  expect(MPI_Comm_split_type(state_->comm, MPI_COMM_TYPE_SHARED, state_->rank, MPI_INFO_NULL, &part),
         "MPI_Comm_split_type");
  return make_link(part, true);
}

std::shared_ptr<MpiLink> MpiLink::duplicate() {
  MPI_Comm copy = MPI_COMM_NULL;
  expect(MPI_Comm_dup(state_->comm, &copy), "MPI_Comm_dup");
  return make_link(copy, true);
}

bool under_launcher() { return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMIX_RANK"); }

void abort_if_initialized(int exit_code) {
  if (running()) MPI_Abort(MPI_COMM_WORLD, exit_code);
}

}  // namespace rw
