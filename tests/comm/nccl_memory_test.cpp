// What communicators take of a GPU: registered memory, on all ranks or on none, and CTAs of messages that wait.
#include <doctest/doctest.h>

#include <vector>

#include "kernels/simt/runtime.cuh"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/nccl_simt.h"
#include "tests/comm/check_tools.h"
#include "tests/comm/device_ranks.h"

using namespace rw;
using checks::DeviceArray;
using checks::expect;
using checks::run_device_ranks;

TEST_CASE("memory is registered on all ranks or on none") {
  run_device_ranks(3, [](Comm& comm, Device& device) {
    const int64_t before = nccl::registered_blocks();
    {
      const SharedBuffer first = comm.allocate(64);
      expect(nccl::registered_blocks() == before + 1, "{} blocks are registered", nccl::registered_blocks());
      if (comm.rank() == 1) nccl::refuse_registrations(1);
      const SharedBuffer second = comm.allocate(64);
      expect(nccl::registered_blocks() == before + 1, "rank {}: {} blocks are registered", comm.rank(),
             nccl::registered_blocks());
      const SharedBuffer third = comm.allocate(64);
      expect(nccl::registered_blocks() == before + 2, "{} blocks are registered", nccl::registered_blocks());
      comm.all_reduce(second.data, 16, DType::f32, ReduceOp::sum);
      std::vector<float> seen(16, 7.0f);
      device.wait();
      device.memory()->copy_to_host(seen.data(), second.data, 64);
      expect(seen == std::vector<float>(16, 0.0f), "the sum of zeros");
    }
    expect(nccl::registered_blocks() == before, "{} blocks are left", nccl::registered_blocks());
    comm.barrier();
  });
}

TEST_CASE("memory may be let go while an operation uses it: its end waits") {
  run_device_ranks(2, [](Comm& comm, Device& device) {
    DeviceArray<float> y(device, {0.0f});
    {
      SharedBuffer x = comm.allocate(4);
      const float mine = 1.0f + static_cast<float>(comm.rank());
      device.ops().upload({.device = x.data, .host = &mine, .bytes = 4}, device.stream());
      comm.wait(comm.all_reduce_start(x.data, 1, DType::f32, ReduceOp::sum));
      device.ops().add({.y = y.data(), .a = x.data, .b = x.data, .n = 1, .t = DType::f32}, device.stream());
    }
    expect(y.get()[0] == 6.0f, "{} instead of 6", y.get()[0]);
    comm.barrier();
  });
}

TEST_CASE("messages that wait hold a few CTAs each") {
  run_device_ranks(2, [](Comm& comm, Device& device) {
    const std::vector<MessageEdge> edges{{0, 1}, {1, 0}};
    comm.prepare_messages(edges);
    DeviceArray<float> x(device, std::vector<float>(1 << 18, 1.0f)), y(device, std::vector<float>(1 << 18, 2.0f));
    const Request in = comm.recv_start(x.data(), x.bytes(), 1 - comm.rank(), 0);
    for (int i = 0; i < 100; ++i) comm.progress();
    const Request out = comm.send_start(y.data(), y.bytes(), 1 - comm.rank(), 0);
    comm.wait(in);
    comm.wait(out);
    device.wait();
    const int64_t most = nccl::most_message_ctas();
    expect(most == 8, "a message in and one out held {} CTAs", most);
    comm.barrier();
  });
}
