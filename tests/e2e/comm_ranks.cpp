// A rank of the end-to-end test of the MPI communicator: `mpirun -n N comm_ranks MODE`. Rank 0 prints "<MODE> passed".
//   checks     all checks of tests/comm
//   full-shm   the same after shared memory has run out: groups fall back to messages, buffers to private memory
//   die        rank 1 is killed while the others wait for it
//   late       rank 1 does not arrive: the others' error names it, and abort_world ends the job with their code
//   overlap    requests advance by progress() alone
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/comm.h"
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

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "checks";
  const char* pretend = std::getenv("RANKWRIGHT_PRETEND_NODES");
  try {
    auto comm = make_world_comm();
    comm->set_timeout(60);
    const int nodes = pretend ? std::atoi(pretend) : 1;
    if (mode == "checks") {
      checks::all(*comm, {.nodes = nodes});
    } else if (mode == "full-shm") {
      exhaust_shared_memory();
      checks::all(*comm, {.nodes = nodes});
      auto group = comm->split(0, comm->rank());
      if (group->size() > 1 && group->name() != "mpi")
        throw std::runtime_error("the group found shared memory: " + group->name());
      checks::all(*group, {.nodes = comm->size()});
    } else if (mode == "overlap") {
      overlap(*comm);
    } else if (mode == "die") {
      die(*comm);
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
