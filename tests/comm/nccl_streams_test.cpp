// What runs beside an operation of device memory, what its wait orders, and pipelines of messages.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/watch.h"
#include "libcore/schedule/pipeline.h"
#include "tests/comm/check_tools.h"
#include "tests/comm/device_ranks.h"

using namespace rw;
using checks::DeviceArray;
using checks::expect;
using checks::run_device_ranks;

namespace {

std::vector<float> floats(int64_t n, float first) {
  std::vector<float> x(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = first + static_cast<float>(i % 17);
  return x;
}

void put_doubling(Device& device, float* y, int64_t n) {
  device.ops().scale({.y = y, .s = 2.0f, .n = n, .t = DType::f32}, device.stream());
}

}  // namespace

TEST_CASE("allocated memory is the device's, zeroed, and is reduced in place") {
  for (int ranks : {1, 3})
    run_device_ranks(ranks, [&](Comm& comm, Device& device) {
      const int64_t n = 1003;
      const SharedBuffer buffer = comm.allocate(n * 4);
      expect(buffer.bytes == n * 4 && reinterpret_cast<uintptr_t>(buffer.data) % 64 == 0, "{} bytes", buffer.bytes);
      std::vector<float> seen(static_cast<size_t>(n), 7.0f);
      device.wait();
      device.memory()->copy_to_host(seen.data(), buffer.data, n * 4);
      for (float v : seen) expect(v == 0, "not zeroed");
      std::vector<float> mine = floats(n, static_cast<float>(comm.rank()));
      device.ops().upload({.device = buffer.data, .host = mine.data(), .bytes = n * 4}, device.stream());
      comm.all_reduce(buffer.data, n, DType::f32, ReduceOp::sum);
      device.wait();
      device.memory()->copy_to_host(seen.data(), buffer.data, n * 4);
      for (int64_t i = 0; i < n; ++i) {
        const float want = static_cast<float>(ranks * (i % 17) + ranks * (ranks - 1) / 2);
        expect(seen[static_cast<size_t>(i)] == want, "element {}: {}", i, seen[static_cast<size_t>(i)]);
      }
      comm.barrier();
    });
}

TEST_CASE(
    "an operation follows the kernels before it, runs beside those after it, and its wait comes before the rest") {
  run_device_ranks(3, [](Comm& comm, Device& device) {
    const int64_t n = 5003;
    DeviceArray<float> x(device, floats(n, static_cast<float>(comm.rank()))), y(device, floats(n, 1.0f));
    for (int i = 0; i < 8; ++i) put_doubling(device, x.data(), n);
    const Request sum = comm.all_reduce_start(x.data(), n, DType::f32, ReduceOp::sum);
    // Some of the kernels are done; the sum has to wait for the others.
    for (int i = 0; i < 4; ++i) comm.progress();
    put_doubling(device, y.data(), n);
    const std::vector<float> beside = y.get();  // waits for the stream, which does not wait for the sum
    for (int64_t i = 0; i < n; ++i)
      expect(beside[static_cast<size_t>(i)] == 2 * (1.0f + static_cast<float>(i % 17)), "beside: element {}", i);
    expect(comm.wait_blocks(sum) == false, "the device waits, not the host");
    comm.wait(sum);
    expect(comm.done(sum), "waited for");
    put_doubling(device, x.data(), n);
    const std::vector<float> after = x.get();
    for (int64_t i = 0; i < n; ++i)
      expect(after[static_cast<size_t>(i)] == 512 * static_cast<float>(3 + 3 * (i % 17)), "after: element {} is {}", i,
             after[static_cast<size_t>(i)]);
    expect(comm.take_stalled_s() > 0 && comm.take_stalled_s() == 0, "the stream stood still once");
    comm.barrier();
  });
}

TEST_CASE("what is read without a wait is what was there before") {
  run_device_ranks(2, [](Comm& comm, Device& device) {
    DeviceArray<float> x(device, floats(101, 1.0f));
    const Request sum = comm.all_reduce_start(x.data(), 101, DType::f32, ReduceOp::sum);
    const std::vector<float> early = x.get();
    expect(early == floats(101, 1.0f), "the sum was there before anybody waited for it");
    comm.wait(sum);
    expect(x.get() != early, "the sum did not arrive");
    comm.barrier();
  });
}

TEST_CASE("uneven parts, in place and apart") {
  run_device_ranks(3, [](Comm& comm, Device& device) {
    const std::vector<int64_t> cuts{2, 9, 9, 40};
    const auto me = static_cast<size_t>(comm.rank());
    DeviceArray<float> x(device, floats(41, static_cast<float>(comm.rank())));
    comm.reduce_scatter(x.data(), cuts, DType::f32);
    const std::vector<float> sums = x.get();
    for (int64_t i = cuts[me]; i < cuts[me + 1]; ++i)
      expect(sums[static_cast<size_t>(i)] == static_cast<float>(3 + 3 * (i % 17)), "sum {} is {}", i,
             sums[static_cast<size_t>(i)]);
    comm.all_gather(x.data() + cuts[me], x.data(), cuts, DType::f32);
    const std::vector<float> all = x.get();
    for (int64_t i = cuts[0]; i < cuts[3]; ++i)
      expect(all[static_cast<size_t>(i)] == static_cast<float>(3 + 3 * (i % 17)), "gathered {} is {}", i,
             all[static_cast<size_t>(i)]);
    expect(all[0] == static_cast<float>(comm.rank()) && all[40] == static_cast<float>(6 + comm.rank()), "nobody's");
    comm.barrier();
  });
}

TEST_CASE("a message follows the kernels before it, along an edge and through the host") {
  for (const bool prepared : {false, true})
    run_device_ranks(2, [&](Comm& comm, Device& device) {
      const std::vector<MessageEdge> edges{{0, 1}};
      if (prepared) comm.prepare_messages(edges);
      DeviceArray<float> x(device, floats(4001, 1.0f));
      if (comm.rank() == 0) {
        put_doubling(device, x.data(), 4001);
        const Request sent = comm.send_start(x.data(), x.bytes(), 1, 4);
        expect(comm.wait_blocks(sent) == !prepared, "who waits for a message");
        comm.wait(sent);
        device.ops().zero({.y = x.data(), .bytes = x.bytes()}, device.stream());
      } else {
        put_doubling(device, x.data(), 4001);  // of what the message replaces
        comm.wait(comm.recv_start(x.data(), x.bytes(), 0, 4));
        put_doubling(device, x.data(), 4001);
        const std::vector<float> got = x.get();
        for (int64_t i = 0; i < 4001; ++i)
          expect(got[static_cast<size_t>(i)] == 4 * (1.0f + static_cast<float>(i % 17)), "element {} is {}", i,
                 got[static_cast<size_t>(i)]);
      }
      device.wait();
      comm.barrier();
    });
}

TEST_CASE("a recorded step holds its operations, each time it is replayed") {
  run_device_ranks(2, [](Comm& comm, Device& device) {
    DeviceArray<float> x(device, floats(301, 1.0f));
    const auto step = [&] {
      put_doubling(device, x.data(), 301);
      const Request sum = comm.all_reduce_start(x.data(), 301, DType::f32, ReduceOp::sum);
      comm.wait(sum);
      expect(comm.done(sum), "waited for");
      put_doubling(device, x.data(), 301);
    };
    const std::unique_ptr<RecordedOps> recorded = device.record(step);
    expect(recorded != nullptr, "nothing was recorded");
    comm.replay([&] { recorded->replay(); });
    recorded->replay();
    const std::vector<float> got = x.get();
    for (int64_t i = 0; i < 301; ++i)  // three times doubled, added over two ranks, doubled
      expect(got[static_cast<size_t>(i)] == 512 * (1.0f + static_cast<float>(i % 17)), "element {} is {}", i,
             got[static_cast<size_t>(i)]);
    comm.all_reduce(x.data(), 301, DType::f32, ReduceOp::sum);
    expect(x.get()[0] == 1024, "an operation after a recorded one");
    comm.barrier();
  });
}

// One step of a pipeline as libcore/train runs it: all receives are posted in the order of the list, long before their
// messages are sent; each virtual stage adds one going up, and one going down.
TEST_CASE("the ring of a pipeline with virtual stages does not stop") {
  for (const PipelineShape shape :
       {PipelineShape{ScheduleKind::interleaved, 2, 2, 4}, PipelineShape{ScheduleKind::interleaved, 3, 2, 6},
        PipelineShape{ScheduleKind::one_f_one_b, 4, 1, 6}})
    run_device_ranks(shape.stages, [&](Comm& up, Device& device) {
      const auto down = up.split(0, up.rank());
      const int me = up.rank(), stages = shape.stages, last = stages * shape.chunks - 1;
      std::vector<MessageEdge> ring, back;
      for (int s = 0; s < stages; ++s) {
        ring.push_back({s, (s + 1) % stages});
        back.push_back({(s + 1) % stages, s});
      }
      up.prepare_messages(ring);
      down->prepare_messages(back);
      const int64_t n = 257;
      const DeviceArray<float> unused(device, floats(1, 0));
      DeviceArray<float> one(device, std::vector<float>(static_cast<size_t>(n), 1.0f));
      struct Slot {
        std::unique_ptr<DeviceArray<float>> x, d;
        Request in, d_in;
      };
      std::vector<Slot> slots(static_cast<size_t>(shape.chunks * shape.micro_batches));
      const auto slot = [&](const Action& a) -> Slot& {
        return slots[static_cast<size_t>(a.chunk * shape.micro_batches + a.micro_batch)];
      };
      const auto virtual_stage = [&](const Action& a) { return a.chunk * stages + me; };
      const std::vector<Action> actions = pipeline_actions(shape, me);
      for (int round = 0; round < 2; ++round) {
        for (const Action& a : actions) {
          Slot& s = slot(a);
          const auto array = [&] {
            return std::make_unique<DeviceArray<float>>(device, std::vector<float>(257, 5.0f));
          };
          if (!s.x) s.x = array(), s.d = array();
        }
        for (const Action& a : actions) {
          Slot& s = slot(a);
          if (a.kind == ActionKind::forward && virtual_stage(a) > 0)
            s.in = up.recv_start(s.x->data(), s.x->bytes(), (me + stages - 1) % stages, 1);
          if (a.kind == ActionKind::backward && virtual_stage(a) < last)
            s.d_in = down->recv_start(s.d->data(), s.d->bytes(), (me + 1) % stages, 1);
        }
        std::vector<Request> sent_up, sent_down;
        const auto add_one = [&](DeviceArray<float>& x) {
          device.ops().add({.y = x.data(), .a = x.data(), .b = one.data(), .n = n, .t = DType::f32}, device.stream());
        };
        for (const Action& a : actions) {
          Slot& s = slot(a);
          if (a.kind == ActionKind::forward) {
            if (virtual_stage(a) == 0) device.ops().zero({.y = s.x->data(), .bytes = s.x->bytes()}, device.stream());
            else up.wait(s.in);
            add_one(*s.x);
            if (virtual_stage(a) < last)
              sent_up.push_back(up.send_start(s.x->data(), s.x->bytes(), (me + 1) % stages, 1));
          } else {
            DeviceArray<float>& d = virtual_stage(a) == last ? *s.x : *s.d;
            if (virtual_stage(a) < last) down->wait(s.d_in);
            add_one(d);
            if (virtual_stage(a) > 0)
              sent_down.push_back(down->send_start(d.data(), d.bytes(), (me + stages - 1) % stages, 1));
          }
        }
        for (const Request r : sent_up) up.wait(r);
        for (const Request r : sent_down) down->wait(r);
        for (const Action& a : actions) {
          if (a.kind != ActionKind::backward) continue;
          DeviceArray<float>& d = virtual_stage(a) == last ? *slot(a).x : *slot(a).d;
          const float want = static_cast<float>(last + 1 + last + 1 - virtual_stage(a));
          for (float v : d.get()) expect(v == want, "virtual stage {}: {} instead of {}", virtual_stage(a), v, want);
        }
      }
      up.barrier();
    });
}

TEST_CASE("watched: waiting for the device is exposed, and an operation is done when the device did it") {
  run_device_ranks(2, [](Comm& comm, Device& device) {
    auto record = std::make_shared<CommRecord>();
    auto watched = watch(comm.split(0, comm.rank()), "dp", record);
    DeviceArray<float> x(device, floats(1009, 1.0f));
    const Request sum = watched->all_reduce_start(x.data(), 1009, DType::f32, ReduceOp::sum);
    watched->wait(sum);
    expect(record->json_lines().find("started") != std::string::npos, "the device has not done it yet");
    device.wait();
    const double before = record->exposed_s;
    expect(record->total_s == 0, "the host's clock does not count");
    record->add_stalls();
    expect(record->exposed_s > before, "the device stood still");
    expect(record->total_s > 0, "the device's clock does");
    const double total = record->total_s;
    record->add_stalls();
    expect(record->total_s == total, "once");
    expect(record->json_lines().find("started") == std::string::npos, "the device did it");
    expect(record->counts.at({"dp", CommKind::all_reduce}) == CommCount{.calls = 1, .bytes = 4036}, "counts");
    comm.barrier();
  });
}
