#include "libcore/bench/comm/comm_trial.h"

#include <cstring>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/bench/comm/mpi_peer.h"
#include "libcore/bench/comm/pattern.h"

namespace rw {
namespace {

void run_peer(Comm& comm, const CommTrial& trial) {
  const int ranks = comm.size(), me = comm.rank();
  if (trial.op == BenchOp::send_recv && me != 0 && me != ranks - 1) return;
  run_mpi_peer({.op = trial.op,
                .data = trial.data,
                .part = trial.op == BenchOp::all_gather && !trial.in_place ? trial.part : nullptr,
                .n = trial.bytes / dtype_bytes(trial.t) / (has_parts(trial.op) ? ranks : 1),
                .t = trial.t,
                .peer = me == 0 ? ranks - 1 : 0,
                .sends_first = me == 0});
}

// `bytes` from the host to where a trial works, or back.
void put(const CommTrial& trial, std::byte* to, const std::byte* from, int64_t bytes) {
  trial.device->ops().upload({.device = to, .host = from, .bytes = bytes}, trial.device->stream());
  trial.device->wait();
}
void get(const CommTrial& trial, std::byte* to, const std::byte* from, int64_t bytes) {
  trial.device->ops().read({.host = to, .device = from, .n = (bytes + 3) / 4, .t = DType::f32}, trial.device->stream());
}

}  // namespace

void run_trial(Comm& comm, const CommTrial& trial) {
  const int64_t n = trial.bytes / dtype_bytes(trial.t);
  const int ranks = comm.size(), me = comm.rank();
  const void* part = trial.in_place ? trial.data + me * (trial.bytes / ranks) : trial.part;
  if (trial.way == kPeerWay) return run_peer(comm, trial);
  switch (trial.op) {
    case BenchOp::all_reduce: return comm.all_reduce(trial.data, n, trial.t, ReduceOp::sum);
    case BenchOp::reduce_scatter: return comm.reduce_scatter(trial.data, even_cuts(n, ranks), trial.t);
    case BenchOp::all_gather: return comm.all_gather(part, trial.data, even_cuts(n, ranks), trial.t);
    case BenchOp::broadcast: return comm.broadcast(trial.data, trial.bytes, 0);
    case BenchOp::barrier: return comm.barrier();
    case BenchOp::send_recv:  // there and back between the ends: the last rank may be on another node
      if (me == 0) comm.send(trial.data, trial.bytes, ranks - 1, 0), comm.recv(trial.data, trial.bytes, ranks - 1, 0);
      if (me == ranks - 1) comm.recv(trial.data, trial.bytes, 0, 0), comm.send(trial.data, trial.bytes, 0, 0);
      return;
  }
}

int64_t count_wrong(Comm& comm, const CommTrial& trial) {
  if (trial.op == BenchOp::barrier) return -1;
  const int64_t n = trial.bytes / dtype_bytes(trial.t);
  const int ranks = comm.size(), me = comm.rank();
  const std::vector<int64_t> cuts = even_cuts(n, ranks);
  const int64_t begin = cuts[static_cast<size_t>(me)], mine = cuts[static_cast<size_t>(me) + 1] - begin;
  // Where the host writes and reads the test data.
  std::vector<std::byte> staged, staged_part;
  std::byte *data = trial.data, *part = trial.part;
  if (trial.device != nullptr) {
    staged.resize(static_cast<size_t>(trial.bytes) + 3);
    staged_part.resize(static_cast<size_t>(trial.bytes / ranks) + 64);
    data = staged.data(), part = staged_part.data();
  }
  std::byte* home = data + begin * dtype_bytes(trial.t);
  const Pattern own = Pattern::of_rank(me, ranks, trial.t), sum = Pattern::of_sum(ranks, trial.t);
  std::memset(data, 0xff, static_cast<size_t>(trial.bytes));
  if (trial.op == BenchOp::all_gather) own.fill(trial.in_place ? home : part, begin, mine);
  else if (trial.op != BenchOp::send_recv || me == 0) own.fill(data, 0, n);
  if (trial.device != nullptr) {
    put(trial, trial.data, data, trial.bytes);
    if (trial.op == BenchOp::all_gather && !trial.in_place) put(trial, trial.part, part, mine * dtype_bytes(trial.t));
  }
  run_trial(comm, trial);
  if (trial.device != nullptr) get(trial, data, trial.data, trial.bytes);
  int64_t wrong = 0;
  switch (trial.op) {
    case BenchOp::all_reduce: wrong = sum.count_wrong(data, 0, n); break;
    case BenchOp::reduce_scatter: wrong = sum.count_wrong(trial.way == kPeerWay ? data : home, begin, mine); break;
    case BenchOp::all_gather:
      for (int r = 0; r < ranks; ++r) {
        const int64_t from = cuts[static_cast<size_t>(r)];
        wrong += Pattern::of_rank(r, ranks, trial.t)
                     .count_wrong(data + from * dtype_bytes(trial.t), from, cuts[static_cast<size_t>(r) + 1] - from);
      }
      break;
    case BenchOp::broadcast: wrong = Pattern::of_rank(0, ranks, trial.t).count_wrong(data, 0, n); break;
    case BenchOp::send_recv:
      if (me == 0 || me == ranks - 1) wrong = Pattern::of_rank(0, ranks, trial.t).count_wrong(data, 0, n);
      break;
    case BenchOp::barrier: CHECK(false, "a barrier has no result");
  }
  return comm.all_reduce_value(wrong, ReduceOp::sum);
}

std::vector<double> time_block(Comm& comm, const CommTrial& trial, const TrialBlock& block) {
  const auto clear = [&] {
    // Sums of zeros stay zero however often they are added.
    if (trial.bytes > 0 && trial.device != nullptr)
      trial.device->ops().zero({.y = trial.data, .bytes = trial.bytes}, trial.device->stream());
    else if (trial.bytes > 0) std::memset(trial.data, 0, static_cast<size_t>(trial.bytes));
  };
  clear();
  std::vector<double> us;
  for (int64_t i = -block.warmup; i < block.samples; ++i) {
    if (block.rewrite) clear();
    if (trial.device != nullptr) trial.device->wait();
    comm.barrier();
    const double start = now_s();
    for (int64_t k = 0; k < block.calls; ++k) run_trial(comm, trial);
    if (trial.device != nullptr) trial.device->wait();
    const double mine = (now_s() - start) * 1e6 / static_cast<double>(block.calls);
    if (i >= 0) us.push_back(trial.op == BenchOp::send_recv ? mine / 2 : mine);
  }
  return us;
}

}  // namespace rw
