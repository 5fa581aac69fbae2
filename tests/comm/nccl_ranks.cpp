// A rank of the end-to-end test of NCCL communicators over processes, in the simulator: `mpirun -n N nccl_ranks MODE`.
// Rank 0 prints "<MODE> passed".
//   checks  what every communicator must do, on device memory
//   late    rank 1 does not arrive: the others' error names it
#include <fmt/core.h>

#include <chrono>
#include <string>
#include <thread>

#include "libcore/base/error.h"
#include "libcore/comm/nccl_comm.h"
#include "tests/comm/comm_checks.h"
#include "tests/comm/device_ranks.h"

using namespace rw;

namespace {

void check(Comm& host, Device& device) {
  auto comm = checks::on_device(make_nccl_comm(host, device), device, checks::Messages::prepared);
  checks::values_and_texts(*comm);
  checks::all_reduce_order(*comm, {});
  checks::reduce_scatter_bits(*comm);
  checks::all_gather_cuts(*comm);
  checks::messages(*comm);
  checks::swaps(*comm);
  checks::kinds_in_flight(*comm);
  checks::groups(*comm);
}

void late(Comm& host, Device& device) {
  const auto comm = make_nccl_comm(host, device);
  checks::DeviceArray<float> x(device, {1.0f});
  comm->barrier();
  if (host.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(60));
  comm->set_timeout(1);
  comm->all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
  device.wait();
  comm->progress();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "checks";
  try {
    const auto host = make_world_comm();
    host->set_timeout(60);
    const auto device = checks::open_test_device();
    if (mode == "checks") check(*host, *device);
    else if (mode == "late") late(*host, *device);
    else throw std::runtime_error("unknown mode " + mode);
    if (host->rank() == 0) fmt::print("{} passed: {} ranks\n", mode, host->size());
    return 0;
  } catch (const Error& e) {
    fmt::print(stderr, "nccl_ranks: {}\n", e.what());
    abort_world(exit_code(e.kind()));
  } catch (const std::exception& e) {
    fmt::print(stderr, "nccl_ranks: {}\n", e.what());
    abort_world(1);
  }
}
