// NCCL communicators in the simulator: what every communicator must do, on host and on device memory.
#include "libcore/comm/nccl_comm.h"

#include <doctest/doctest.h>

#include "tests/comm/comm_checks.h"
#include "tests/comm/device_ranks.h"

using namespace rw;
using checks::Messages;

namespace {

template <typename F>
void for_ranks(F check) {
  for (int n : {1, 2, 3, 5}) {
    CAPTURE(n);
    run_thread_ranks(n, [&](Comm& host) {
      host.set_timeout(60);
      const auto device = checks::open_test_device();
      check(host, *device);
    });
  }
}

}  // namespace

TEST_CASE("host memory goes to the host's communicator") {
  for_ranks([](Comm& host, Device& device) {
    auto comm = checks::on_host(make_nccl_comm(host, device));
    checks::values_and_texts(*comm);
    checks::all_reduce_exact(*comm);
    checks::all_gather_cuts(*comm);
    checks::broadcast_exact(*comm);
    checks::messages(*comm);
    checks::swaps(*comm);
    checks::messages_to_oneself(*comm);
    checks::kinds_in_flight(*comm);
    checks::groups(*comm);
  });
}

TEST_CASE("reductions on the device, with the host communicator's bits") {
  for_ranks([](Comm& host, Device& device) {
    auto comm = checks::on_device(make_nccl_comm(host, device), device, Messages::staged);
    checks::all_reduce_exact(*comm);
    checks::all_reduce_order(*comm, {});
    checks::all_reduce_nan(*comm);
    checks::sums_of_16_bits(*comm, {});
    checks::reduce_scatter_exact(*comm);
    checks::reduce_scatter_bits(*comm);
  });
}

TEST_CASE("gathers, broadcasts, groups on the device") {
  for_ranks([](Comm& host, Device& device) {
    auto comm = checks::on_device(make_nccl_comm(host, device), device, Messages::staged);
    checks::values_and_texts(*comm);
    checks::all_gather_exact(*comm);
    checks::all_gather_cuts(*comm);
    checks::broadcast_exact(*comm);
    checks::many_in_flight(*comm);
    checks::kinds_in_flight(*comm);
    checks::groups(*comm);
    checks::shuffled_group(*comm);
    checks::places(*comm, {});
  });
}

TEST_CASE("messages of device memory, through the host and along prepared edges") {
  for (const Messages way : {Messages::staged, Messages::prepared})
    for_ranks([way](Comm& host, Device& device) {
      auto comm = checks::on_device(make_nccl_comm(host, device), device, way);
      checks::messages(*comm);
      checks::messages_in_flight(*comm);
      checks::swaps(*comm);
      checks::messages_to_oneself(*comm);
      checks::kinds_in_flight(*comm);
    });
}
