// How a rank's communicators end when something failed: together, without waiting for each other or for what the rank
// still holds, and with the first error's words.
#include <doctest/doctest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/simt/runtime.cuh"
#include "libcore/base/error.h"
#include "libcore/comm/nccl_comm.h"
#include "tests/comm/check_tools.h"
#include "tests/comm/device_ranks.h"
#include "tests/comm/failing_ranks.h"

using namespace rw;
using checks::Arrivals;
using checks::DeviceArray;
using checks::expect;
using checks::leave_together;
using checks::message_of;
using checks::must_say;

namespace {

std::unique_ptr<RecordedOps> record_sum(Comm& comm, Device& device, DeviceArray<float>& x) {
  auto recorded =
      device.record([&] { comm.wait(comm.all_reduce_start(x.data(), x.size(), DType::f32, ReduceOp::sum)); });
  device.wait();
  return recorded;
}

}  // namespace

TEST_CASE("recorded steps of a communicator that failed end in their own time: nobody waits for them") {
  Arrivals ended;
  checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
    DeviceArray<float> x(device, {1.0f}), y(device, {1.0f});
    const auto first = record_sum(comm, device, x);
    auto second = record_sum(comm, device, y);
    if (comm.rank() == 0) {
      comm.set_timeout(0.2);
      comm.replay([&] { first->replay(); });
      device.wait();
      const std::string told = message_of([&] { comm.progress(); });
      must_say(told, "a recorded step");
      expect(message_of([&] { comm.replay([&] { second->replay(); }); }) == told, "every call tells");
      second.reset();
      expect(message_of([&] { comm.barrier(); }) == told, "every call tells");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("a recorded step may outlive its communicators") {
  Arrivals ended;
  run_thread_ranks(2, [&](Comm& host) {
    const auto device = checks::open_test_device();
    DeviceArray<float> x(*device, {1.0f});
    std::unique_ptr<RecordedOps> recorded;
    {
      const auto comm = make_nccl_comm(host, *device);
      recorded = record_sum(*comm, *device, x);
      if (host.rank() == 0) {
        comm->set_timeout(0.2);
        comm->all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
        device->wait();
        must_say(message_of([&] { comm->progress(); }), "all_reduce #2");
      }
      leave_together(ended, 2);
    }
    recorded.reset();
  });
}

TEST_CASE("communicators with work under way on each are aborted together") {
  Arrivals ended;
  checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
    const auto dp = comm.split(0, comm.rank()), tp = comm.split(0, comm.rank());
    const std::vector<MessageEdge> edges{{0, 1}, {1, 0}};
    comm.prepare_messages(edges);
    if (comm.rank() == 0) {
      DeviceArray<float> x(device, {1.0f}), y(device, {1.0f}), z(device, {1.0f});
      dp->set_timeout(0.2);
      const Request sums[] = {tp->all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum),
                              dp->all_reduce_start(y.data(), 1, DType::f32, ReduceOp::sum)};
      comm.wait(comm.recv_start(z.data(), 4, 1, 0));
      tp->wait(sums[0]);
      dp->wait(sums[1]);
      device.wait();
      must_say(message_of([&] { tp->progress(); }), "all_reduce #0 (4 B, group nccl/simt): rank 1 on host ");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("an exception on its way up ends what is under way, of all communicators, and arrives as it was") {
  for (const bool is_registered : {false, true}) {
    Arrivals ended;
    run_thread_ranks(2, [&](Comm& host) {
      const auto device = checks::open_test_device();
      DeviceArray<float> x(*device, {1.0f}), y(*device, {1.0f});
      const std::string told = message_of([&] {
        const auto comm = make_nccl_comm(host, *device);
        const auto dp = comm->split(0, host.rank()), tp = comm->split(0, host.rank());
        const SharedBuffer z = is_registered ? tp->allocate(4) : SharedBuffer{};
        if (host.rank() == 1) return leave_together(ended, 2);
        tp->wait(tp->all_reduce_start(is_registered ? z.data : x.data(), 1, DType::f32, ReduceOp::sum));
        dp->all_reduce_start(y.data(), 1, DType::f32, ReduceOp::sum);
        for (int i = 0; i < 10; ++i) comm->progress();
        fail(ErrorKind::input, "no such file: corpus.h5");
      });
      if (host.rank() == 0) {
        expect(told == "no such file: corpus.h5", "\"{}\" arrived", told);
        leave_together(ended, 2);
      }
    });
  }
}

TEST_CASE("a kernel that fails while communicators have work under way: cleaning up does not end the process") {
  for (const bool is_asked : {true, false}) {
    Arrivals ended;
    run_thread_ranks(2, [&](Comm& host) {
      const auto device = checks::open_test_device();
      const std::string told = message_of([&] {
        const auto comm = make_nccl_comm(host, *device);
        const auto dp = comm->split(0, host.rank());
        DeviceArray<float> x(*device, {1.0f});
        if (host.rank() == 1) return leave_together(ended, 2);
        comm->all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum);
        simt::enqueue(static_cast<cudaStream_t>(device->stream().native),
                      [] { throw std::runtime_error("kernel gather: an illegal address"); });
        dp->all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum);
        if (is_asked) device->wait();
        // Nobody was told: every call still says so, as a GPU's calls do for good.
        while (simt::poll_streams()) continue;
        fail(ErrorKind::runtime, "kernel gather: {}", simt::fault_text());
      });
      if (host.rank() == 0) {
        must_say(told, "kernel gather: an illegal address");
        leave_together(ended, 2);
      }
    });
  }
}
