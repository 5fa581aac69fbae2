// A rank that dies, that does not come, or that asks for something else: the others are told who and where, within the
// time limit, whatever they wait in; and communicators made anew work.
#include <doctest/doctest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/watch.h"
#include "tests/comm/check_tools.h"
#include "tests/comm/device_ranks.h"
#include "tests/comm/failing_ranks.h"

using namespace rw;
using checks::Arrivals;
using checks::DeviceArray;
using checks::expect;
using checks::has;
using checks::leave_together;
using checks::message_of;
using checks::must_say;

namespace {

void works(Comm& host, Device& device) {
  const auto comm = make_nccl_comm(host, device);
  DeviceArray<float> x(device, {1.0f, 2.0f, 3.0f});
  comm->all_reduce(x.data(), 3, DType::f32, ReduceOp::sum);
  const auto ranks = static_cast<float>(host.size());
  expect(x.get() == std::vector<float>{ranks, 2 * ranks, 3 * ranks}, "the sum over a new communicator");
  comm->barrier();
}

}  // namespace

TEST_CASE("a rank that does not come is named; streams go on, every call tells, and a new communicator works") {
  Arrivals ended;
  run_thread_ranks(3, [&](Comm& host) {
    const auto device = checks::open_test_device();
    {
      const auto comm = make_nccl_comm(host, *device);
      DeviceArray<float> x(*device, std::vector<float>(1 << 18, 1.0f));
      comm->all_reduce(x.data(), 1 << 18, DType::f32, ReduceOp::sum);
      device->wait();
      comm->set_timeout(0.2);
      if (host.rank() != 1) {
        comm->all_reduce(x.data(), 1 << 18, DType::f32, ReduceOp::sum);
        device->wait();  // comes back, though the sum never does
        const std::string told = message_of([&] { comm->take_stalled_s(); });
        must_say(told, "all_reduce #1 (1.0 MiB, group nccl/simt): rank 1 on host ");
        must_say(told, " did not arrive within 0.2 s");
        expect(!has(told, "rank 0") && !has(told, "rank 2"), "{}", told);
        std::vector<float> y(3);
        expect(message_of([&] { comm->all_reduce(y.data(), 3, DType::f32, ReduceOp::sum); }) == told,
               "every call tells");
        expect(message_of([&] { comm->split(0, 0); }) == told, "every call tells");
      }
      leave_together(ended, 3);
    }
    works(host, *device);
  });
}

TEST_CASE("what the host waits for ends too when the device's operation fails") {
  Arrivals ended;
  run_thread_ranks(2, [&](Comm& host) {
    const auto device = checks::open_test_device();
    const auto comm = make_nccl_comm(host, *device);
    const auto group = comm->split(0, host.rank());
    if (host.rank() == 0) {
      DeviceArray<float> x(*device, {1.0f});
      group->set_timeout(0.2);
      group->wait(group->all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum));
      // Of the 300 s of comm.
      must_say(message_of([&] { comm->barrier(); }), "all_reduce #0 (4 B, group nccl/simt): rank 1 on host ");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("a recorded step that a rank does not replay ends at the time limit too") {
  Arrivals ended;
  checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
    DeviceArray<float> x(device, {1.0f});
    const auto recorded =
        device.record([&] { comm.wait(comm.all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum)); });
    comm.replay([&] { recorded->replay(); });
    device.wait();
    if (comm.rank() == 0) {
      comm.set_timeout(0.2);
      comm.replay([&] { recorded->replay(); });
      device.wait();
      // The plain run, the one that was recorded, and the first replay came before.
      must_say(message_of([&] { comm.progress(); }), "a recorded step #3 (group nccl/simt): rank 1 on host ");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("messages along an edge name the peer that does not send, or does not take") {
  for (const bool sends : {false, true}) {
    Arrivals ended;
    checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
      const std::vector<MessageEdge> edges{{0, 1}, {1, 0}};
      comm.prepare_messages(edges);
      comm.set_timeout(0.2);
      DeviceArray<float> x(device, std::vector<float>(1 << 20, 1.0f));
      if (comm.rank() == 0) {
        comm.wait(sends ? comm.send_start(x.data(), x.bytes(), 1, 3) : comm.recv_start(x.data(), x.bytes(), 1, 3));
        device.wait();
        const std::string told = message_of([&] { comm.progress(); });
        must_say(told,
                 (sends ? "send" : "recv") + std::string(" #1 with rank 1 of the group (4.0 MiB, group nccl/simt)"));
        must_say(told, ": rank 1 on host ");
      }
      leave_together(ended, 2);
    });
  }
}

TEST_CASE("a rank that throws ends the others' waits at once") {
  std::atomic<int> told{0};
  Arrivals started;
  std::string message;
  try {
    run_thread_ranks(3, [&](Comm& host) {
      const auto device = checks::open_test_device();
      const auto comm = make_nccl_comm(host, *device);
      DeviceArray<float> x(*device, {1.0f});
      if (host.rank() == 2) {
        started.wait_for(2);
        fail(ErrorKind::input, "no such file: corpus.h5");
      }
      comm->all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
      started.arrive();
      device->wait();
      try {
        comm->progress();
      } catch (const Error& e) {
        if (has(e.what(), "all_reduce #0") && has(e.what(), "rank 2 failed: no such file")) told.fetch_add(1);
        throw;
      }
    });
  } catch (const Error& e) {
    message = e.what();
  }
  CHECK(message == "no such file: corpus.h5");
  CHECK(told.load() == 2);
}

TEST_CASE("ranks that ask for different sizes are told so") {
  const std::string message = message_of([] {
    run_thread_ranks(2, [](Comm& host) {
      const auto device = checks::open_test_device();
      const auto comm = make_nccl_comm(host, *device);
      DeviceArray<float> x(*device, std::vector<float>(100, 1.0f));
      comm->set_timeout(1);
      comm->all_reduce(x.data(), host.rank() == 0 ? 100 : 99, DType::f32, ReduceOp::sum);
      device->wait();
      comm->progress();
    });
  });
  CHECK(has(message, "NCCL: remote process exited"));
}

TEST_CASE("watched: the operation that the device did not do is the one that failed, whoever notices") {
  Arrivals ended;
  checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
    auto record = std::make_shared<CommRecord>();
    const auto dp = watch(comm.split(0, comm.rank()), "dp", record);
    const auto tp = watch(comm.split(0, comm.rank()), "tp", record);
    DeviceArray<float> x(device, {1.0f});
    dp->all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
    device.wait();
    if (comm.rank() == 0) {
      dp->set_timeout(0.2);
      dp->all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
      device.wait();
      expect(!message_of([&] { tp->barrier(); }).empty(), "it is told");
      const std::string lines = record->json_lines();
      must_say(lines, R"({"op":"all_reduce","group":"dp","sequence":0,"bytes":4,"state":"done")");
      must_say(lines, R"({"op":"all_reduce","group":"dp","sequence":1,"bytes":4,"state":"failed")");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("watched: whichever call learns of it, the operation that the device waits for is the one that failed") {
  for (const bool asks_for_stalls : {false, true}) {
    Arrivals ended;
    checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
      auto record = std::make_shared<CommRecord>();
      const auto dp = watch(comm.split(0, comm.rank()), "dp", record);
      if (comm.rank() == 0) {
        DeviceArray<float> x(device, {1.0f});
        dp->set_timeout(0.2);
        const Request sum = dp->all_reduce_start(x.data(), 1, DType::f32, ReduceOp::sum);
        dp->wait(sum);
        device.wait();
        expect(!message_of([&] { asks_for_stalls ? (void)dp->take_stalled_s() : dp->progress(); }).empty(), "told");
        must_say(record->json_lines(), R"("sequence":0,"bytes":4,"state":"failed")");
      }
      leave_together(ended, 2);
    });
  }
}

TEST_CASE("communicators that were made by another thread look after its operations") {
  Arrivals ended;
  checks::run_device_ranks(2, [&](Comm& comm, Device& device) {
    if (comm.rank() == 0) {
      DeviceArray<float> x(device, {1.0f});
      comm.set_timeout(0.2);
      std::string told;
      std::thread engine([&] {
        device.bind_thread();
        told = message_of([&] {
          comm.all_reduce(x.data(), 1, DType::f32, ReduceOp::sum);
          device.wait();
          comm.progress();
        });
      });
      engine.join();
      must_say(told, "all_reduce #0 (4 B, group nccl/simt): rank 1 on host ");
    }
    leave_together(ended, 2);
  });
}

TEST_CASE("our own mistakes are checks") {
  run_thread_ranks(1, [](Comm& host) {
    const auto device = checks::open_test_device();
    const auto comm = make_nccl_comm(host, *device);
    DeviceArray<float> x(*device, {1.0f});
    CHECK_THROWS_AS(comm->send(x.data(), 4, 1, 0), CheckFailed);
    CHECK_THROWS_AS(comm->wait({5}), CheckFailed);
    CHECK_THROWS_AS(comm->all_reduce(x.data(), 1, DType::bf16, ReduceOp::max), CheckFailed);
    CHECK_THROWS_AS(comm->reduce_scatter(x.data(), std::vector<int64_t>{0, 2, 1}, DType::f32), CheckFailed);
    const auto cpu = open_device({});
    CHECK_THROWS_AS(make_nccl_comm(host, *cpu), CheckFailed);
    CHECK(device_comm(host, *cpu) == nullptr);
    CHECK(device_comm(host, *device)->name() == "nccl/simt");
  });
}
