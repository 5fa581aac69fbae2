// A rank of the end-to-end test of all_reduce's ways: `mpirun -n N comm_ways MODE [RANKS_PER_NODE]`. Rank 0 prints
// "<MODE> passed".
//   bits  of every way: the same on all ranks and in every run; large buffers of the communicator, in place at every
//   level late  rank 1 does not arrive at a step list: the others' error names it
#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/steps_comm.h"
#include "tests/comm/comm_checks.h"

using namespace rw;

namespace {

void same_bits(Comm& comm) {
  for (int64_t n : {7, 5003, 300001}) {
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      std::vector<float> x(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i)
        x[static_cast<size_t>(i)] = std::sin(static_cast<float>(i * 31 + comm.rank() * 17)) * 1e3f;
      comm.all_reduce(x.data(), n, DType::f32, ReduceOp::sum);
      if (run == 0) first = x;
      std::vector<float> of_rank_0 = x;
      comm.broadcast(of_rank_0.data(), n * 4, 0);
      if (std::memcmp(x.data(), of_rank_0.data(), static_cast<size_t>(n) * 4) != 0)
        throw std::runtime_error(fmt::format("the sum of {} floats differs from rank 0's", n));
      if (std::memcmp(x.data(), first.data(), static_cast<size_t>(n) * 4) != 0)
        throw std::runtime_error(fmt::format("the sum of {} floats differs from the first run's", n));
    }
  }
}

// Large buffers of the communicator, in place at every level.
void large(Comm& comm) {
  const int64_t n = 1'500'001;
  const SharedBuffer buffer = comm.allocate(n * 4);
  auto* x = static_cast<float*>(buffer.data);
  for (int run = 0; run < 2; ++run) {
    for (int64_t i = 0; i < n; ++i) x[i] = static_cast<float>((i + comm.rank()) % 1000);
    comm.all_reduce(x, n, DType::f32, ReduceOp::sum);
    for (int64_t i = 0; i < n; ++i) {
      int64_t sum = 0;
      for (int r = 0; r < comm.size(); ++r) sum += (i + r) % 1000;
      if (x[i] != static_cast<float>(sum)) throw std::runtime_error(fmt::format("element {} is {}", i, x[i]));
    }
    comm.barrier();
  }
}

void late(Comm& comm) {
  comm.barrier();
  if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  comm.set_timeout(1);
  std::vector<float> x(1000, 1.0f);
  comm.all_reduce(x.data(), 1000, DType::f32, ReduceOp::sum);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  WorldOptions options{.ranks_per_node = argc > 2 ? std::atoi(argv[2]) : 0};
  try {
    std::vector<std::string> ways{"doubling"};
    if (mode == "bits") {
      ways = way_names();
      ways.push_back("auto");
    }
    for (const std::string& way : ways) {
      options.all_reduce = make_all_reduce_policy(way, "");
      auto comm = make_world_comm(options);
      comm->set_timeout(40);
      if (mode == "late") late(*comm);
      if (way != "mpi") checks::all_reduce_nan(*comm);  // MPI's own maximum may lose one
      same_bits(*comm);
      large(*comm);
      if (way == ways.back() && comm->rank() == 0)
        fmt::print("{} passed: {} ranks, {}\n", mode, comm->size(), comm->name());
    }
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "comm_ways: {}\n", e.what());
    abort_world(exit_code(e.kind()));
  } catch (const std::exception& e) {
    fmt::print(stderr, "comm_ways: {}\n", e.what());
    abort_world(1);
  }
}
