// Open MPI's own numbers beside `dbench comm --way mpi-blocking`: loops as the OSU micro-benchmarks have them, in the
// same processes and in turn with it, so that both meet the same machine.
//
// OSU: a barrier, one call, its time; the mean over iterations on each rank, then over ranks. dbench comm: the slowest
// rank of each sample, the median of the samples. So the loop keeps every time: `osu_us` is OSU's figure, `peer_us`
// what dbench's definition makes of the same times, `ours_us` dbench's. ratio = ours_us / peer_us compares like with
// like. mpirun -n 2 comm_peer [ROUNDS [ITERATIONS]]; a JSON line a size, then one an operation with the medians.
#define OMPI_SKIP_MPICXX 1
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "libcore/base/median.h"
#include "libcore/bench/comm/comm_bench.h"
#include "libcore/comm/comm.h"
#include "libcore/device/arena.h"

namespace {

using rw::BenchOp;

constexpr int64_t kMostBytes = 4 << 20;

struct Peer {
  BenchOp op;
  int64_t bytes;
  void *send, *receive;
};

// As dbench calls them: reductions and broadcast in place, f32.
void call(const Peer& p, int ranks, int rank) {
  const int n = static_cast<int>(p.bytes / 4);
  void *send = p.send, *receive = p.receive;
  switch (p.op) {
    case BenchOp::all_reduce: MPI_Allreduce(MPI_IN_PLACE, receive, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); return;
    case BenchOp::reduce_scatter:
      MPI_Reduce_scatter_block(MPI_IN_PLACE, receive, n / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      return;
    case BenchOp::all_gather:
      MPI_Allgather(send, n / ranks, MPI_FLOAT, receive, n / ranks, MPI_FLOAT, MPI_COMM_WORLD);
      return;
    case BenchOp::broadcast: MPI_Bcast(receive, n, MPI_FLOAT, 0, MPI_COMM_WORLD); return;
    case BenchOp::barrier: MPI_Barrier(MPI_COMM_WORLD); return;
    case BenchOp::send_recv:
      if (rank == 0) MPI_Send(receive, n, MPI_FLOAT, ranks - 1, 0, MPI_COMM_WORLD);
      if (rank == 0) MPI_Recv(receive, n, MPI_FLOAT, ranks - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == ranks - 1) MPI_Recv(receive, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      if (rank == ranks - 1) MPI_Send(receive, n, MPI_FLOAT, 0, 0, MPI_COMM_WORLD);
      return;
  }
}

struct Figures {
  double osu_us = 0, peer_us = 0;
};
Figures osu_loop(const Peer& p, int iterations) {
  int ranks = 1, rank = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::memset(p.receive, 0, static_cast<size_t>(p.bytes));
  const double half = p.op == BenchOp::send_recv ? 0.5 : 1;
  std::vector<double> us;
  const int warmup = std::max(2, iterations / 10);
  for (int i = -warmup; i < iterations; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    call(p, ranks, rank);
    if (i >= 0) us.push_back((MPI_Wtime() - start) * 1e6 * half);
  }
  Figures f;
  for (double t : us) f.osu_us += t / iterations / ranks;
  MPI_Allreduce(MPI_IN_PLACE, &f.osu_us, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  MPI_Allreduce(MPI_IN_PLACE, us.data(), iterations, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  f.peer_us = rw::median(us);
  return f;
}

double ours(rw::Comm& comm, BenchOp op, int64_t bytes, int iterations) {
  rw::CommBenchSpec spec;
  spec.op = {rw::bench_op_name(op)}, spec.way = {"mpi-blocking"}, spec.memory = "private", spec.check = false;
  if (op == BenchOp::barrier) spec.memory = "both";
  spec.min_bytes = spec.max_bytes = bytes, spec.repeats = 1, spec.calls = 1;
  spec.iters = iterations, spec.warmup_iters = std::max(2, iterations / 10);
  rw::AllReducePolicy policy;
  double us = 0;
  rw::run_comm_bench(
      {.spec = spec, .comm = comm, .policy = policy, .has_library = true, .report = [&](const rw::CommCase& c) {
         // all_gather in place and not: the peer's is from one buffer to another.
         us = c.out_of_place ? c.out_of_place->us : c.in_place->us;
       }});
  return us;
}

}  // namespace

int main(int argc, char** argv) {
  rw::keep_freed_memory();
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9, iterations = argc > 2 ? std::atoi(argv[2]) : 200;
  const auto comm = rw::make_world_comm();
  if (comm->size() < 2 || rounds < 1 || iterations < 5) {
    fmt::print(stderr, "usage: mpirun -n 2 comm_peer [ROUNDS [ITERATIONS >= 5]]\n");
    return 2;
  }
  // As OSU's: from the heap, at a page's begin. (In huge pages the library's large messages take half of the time.)
  const std::unique_ptr<void, decltype(&std::free)> send(std::aligned_alloc(4096, kMostBytes), std::free),
      receive(std::aligned_alloc(4096, kMostBytes), std::free);
  std::memset(send.get(), 0, kMostBytes);
  std::map<BenchOp, std::vector<double>> of_op;
  for (const BenchOp op : rw::kBenchOps)
    for (int64_t bytes = 1 << 10; bytes <= kMostBytes; bytes *= 4) {
      // The library's calls of large messages are few, or they take all the time.
      const int n = static_cast<int>(std::clamp<int64_t>((int64_t{64} << 20) / bytes, 20, iterations));
      const Peer peer{.op = op, .bytes = bytes, .send = send.get(), .receive = receive.get()};
      std::vector<double> osu, theirs, mine, ratios;
      for (int r = 0; r < rounds; ++r) {
        const bool peer_first = r % 2 == 0;
        Figures f;
        if (peer_first) f = osu_loop(peer, n);
        mine.push_back(ours(*comm, op, bytes, n));
        if (!peer_first) f = osu_loop(peer, n);
        osu.push_back(f.osu_us), theirs.push_back(f.peer_us);
        // A barrier is over in less than the clocks' skew: of the slowest rank's times only the mean over ranks is
        // left.
        ratios.push_back(mine.back() / (op == BenchOp::barrier ? f.osu_us : f.peer_us));
      }
      of_op[op].push_back(rw::median(ratios));
      if (comm->rank() == 0)
        fmt::print("{}\n", rw::Json{{"op", rw::bench_op_name(op)},
                                    {"bytes", op == BenchOp::barrier ? 0 : bytes},
                                    {"ranks", comm->size()},
                                    {"ours_us", rw::median(mine)},
                                    {"peer_us", rw::median(theirs)},
                                    {"osu_us", rw::median(osu)},
                                    {"ratio", rw::median(ratios)}}
                               .dump());
      if (op == BenchOp::barrier) break;
    }
  bool is_within = true;
  for (const auto& [op, ratios] : of_op) {
    const double ratio = rw::median(ratios);
    is_within = is_within && ratio >= 0.97 && ratio <= 1.03;
    if (comm->rank() == 0)
      fmt::print("{}\n", rw::Json{{"op", rw::bench_op_name(op)},
                                  {"median_ratio", ratio},
                                  {"within_3_percent", ratio >= 0.97 && ratio <= 1.03}}
                             .dump());
  }
  return is_within ? 0 : 3;
}
