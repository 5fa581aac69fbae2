// A rank of the end-to-end test of the MPI communicator: `mpirun -n N comm_ranks MODE [RANKS_PER_NODE [FOLDER]]`. Rank
// 0 prints
// "<MODE> passed".
//   checks     all checks of tests/comm
//   full-shm   the same after shared memory has run out: groups fall back to messages, buffers to private memory
//   die        rank 1 is killed while the others wait for it
//   late       rank 1 does not arrive: the others' error names it, and abort_world ends the job with their code
//   watchdog   the same, watched: FOLDER gets the ranks' files, rank 0 prints the verdict
//   ways       every way of an all_reduce, in the world and in groups, beside other operations
//   overlap    requests advance by progress() alone
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/steps_comm.h"
#include "libcore/comm/watch.h"
#include "tests/comm/comm_checks.h"

using namespace rw;

namespace {

void exhaust_shared_memory() {
  signal(SIGXFSZ, SIG_IGN);
  const rlimit small{4096, 4096};
  if (setrlimit(RLIMIT_FSIZE, &small) != 0) throw std::runtime_error("setrlimit failed");
}

void overlap(Comm& comm) {
  std::vector<float> x(300000, static_cast<float>(comm.rank() + 1));
  const Request r = comm.all_reduce_start(x.data(), 300000, DType::f32, ReduceOp::sum);
  const float want = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
  // Not a timed assertion: it ends as soon as the result is there, and mpirun's limit is minutes away.
  while (const_cast<volatile float&>(x.back()) != want || const_cast<volatile float&>(x.front()) != want) {
    comm.progress();
    std::this_thread::yield();
  }
  comm.barrier();
  comm.wait(r);
  for (float v : x)
    if (v != want) throw std::runtime_error("wrong sum");
}

void die(Comm& comm) {
  comm.set_timeout(60);
  std::vector<float> x(100000, 1.0f);
  for (int i = 0; i < 20; ++i) comm.all_reduce(x.data(), 100, DType::f32, ReduceOp::sum);
  if (comm.rank() == 1) raise(SIGKILL);
  comm.all_reduce(x.data(), 100000, DType::f32, ReduceOp::sum);
}

void late(Comm& comm) {
  comm.barrier();
  if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  comm.set_timeout(1);
  double x = 1;
  comm.all_reduce(&x, 1, DType::f64, ReduceOp::sum);
}

void watchdog(Comm& comm, const std::filesystem::path& folder) {
  auto record = std::make_shared<CommRecord>();
  record->rank = comm.rank();
  record->host = comm.hosts()[static_cast<size_t>(comm.rank())];
  record->phase = "backward";
  record->step = 5;
  auto all = watch(comm.split(0, comm.rank()), "dp", record);
  all->barrier();
  if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  all->set_timeout(1);
  std::vector<float> x(100003);
  try {
    all->all_reduce(x.data(), 100003, DType::f32, ReduceOp::sum);
  } catch (const Error&) {
    write_watchdog(*record, folder);
    // The others give up about now; the first to leave ends the job.
    std::this_thread::sleep_for(std::chrono::seconds(comm.rank() == 0 ? 2 : 30));
    fmt::print("{}\n", watchdog_verdict(folder, comm.size()));
    throw;
  }
}

void ways(const WorldOptions& world) {
  for (const std::string& way : way_names()) {
    WorldOptions options = world;
    options.all_reduce = make_all_reduce_policy(way, "");
    auto comm = make_world_comm(options);
    comm->set_timeout(60);
    checks::values_and_texts(*comm);
    checks::all_reduce_exact(*comm);
    checks::many_in_flight(*comm);
    checks::kinds_in_flight(*comm);
    checks::groups(*comm);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "checks";
  const int ranks_per_node = argc > 2 ? std::atoi(argv[2]) : 0;
  try {
    const WorldOptions options{.ranks_per_node = ranks_per_node};
    auto comm = make_world_comm(options);
    comm->set_timeout(60);
    if (mode == "checks") {
      checks::places(*comm, {.ranks_per_node = ranks_per_node});
      checks::all(*comm, {.ranks_per_node = ranks_per_node});
    } else if (mode == "full-shm") {
      exhaust_shared_memory();
      checks::all(*comm, {.ranks_per_node = ranks_per_node});
      auto group = comm->split(0, comm->rank());
      if (group->size() > 1 && group->name() != "mpi")
        throw std::runtime_error("the group found shared memory: " + group->name());
      checks::all(*group, {.ranks_per_node = 1});
    } else if (mode == "ways") {
      ways(options);
    } else if (mode == "overlap") {
      overlap(*comm);
    } else if (mode == "die") {
      die(*comm);
    } else if (mode == "watchdog" && argc > 3) {
      watchdog(*comm, argv[3]);
    } else if (mode == "late") {
      late(*comm);
    } else {
      throw std::runtime_error("unknown mode " + mode);
    }
    if (comm->rank() == 0) fmt::print("{} passed: {} ranks, {}\n", mode, comm->size(), comm->name());
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "comm_ranks: {}\n", e.what());
    abort_world(exit_code(e.kind()));
  } catch (const std::exception& e) {
    fmt::print(stderr, "comm_ranks: {}\n", e.what());
    abort_world(1);
  }
}
