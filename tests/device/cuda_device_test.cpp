// The CUDA device, in the simulator: memory, the stream, recorded work, times, and what it says when something fails.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "kernels/simt/runtime.cuh"
#include "libcore/base/error.h"
#include "libcore/device/arena.h"
#include "libcore/device/device.h"
#include "libcore/device/inventory.h"
#include "tests/device/messages.h"

namespace rw {
namespace {

using test::failure;
using test::holds;

// The simulator's settings are the host thread's: as they were, afterwards.
struct Settings {
  explicit Settings(bool guard) { simt::set_guard(guard); }
  ~Settings() {
    simt::set_memory_limit(0);
    simt::set_devices(8);
    simt::set_capability(90);
    simt::set_guard(false);
  }
};

std::unique_ptr<Device> open_cuda(int local_rank = 0) {
  return open_device({.device = "cuda", .local_rank = local_rank, .threads = 1});
}

TEST_CASE("cuda device: is the one of the local rank, or the one that is named") {
  const Settings settings(true);
  CHECK(open_cuda(3)->name() == "cuda:3 (simulated GPU)");
  CHECK(open_device({.device = "cuda:5", .local_rank = 3})->name() == "cuda:5 (simulated GPU)");
  const auto device = open_cuda();
  CHECK(device->kind() == DeviceKind::cuda);
  CHECK(device->stream().native != nullptr);
  CHECK(device->memory()->name() == device->name());
}

TEST_CASE("cuda device: its streams do not share the default's few queues") {
  const auto device = open_cuda();
  const char* queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  REQUIRE(queues != nullptr);
  CHECK(std::string(queues) == "32");
}

TEST_CASE("cuda device: what is missing is said, and how to go on") {
  const Settings settings(false);
  const auto refusal = [](const DeviceWish& wish) { return failure([&] { open_device(wish); }, ErrorKind::usage); };
  simt::set_devices(4);
  const std::string too_many = refusal({.device = "cuda", .local_rank = 4});
  CHECK(holds(too_many, "--device cuda: local rank 4 has no device"));
  CHECK(holds(too_many, "this host has 4 (simulated GPU); start at most 4 ranks on a host, or run with --device cpu"));
  CHECK(holds(refusal({.device = "cuda:4"}), "--device cuda:4: expected cuda:0 to cuda:3"));
  simt::set_devices(0);
  CHECK(holds(
      refusal({.device = "cuda"}),
      "--device cuda: no CUDA device: cudaErrorNoDevice: no CUDA-capable device is detected; run with --device cpu"));
  simt::set_devices(-1);
  const std::string old = refusal({.device = "cuda"});
  CHECK(holds(old, "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"));
  CHECK(holds(old, "the NVIDIA driver is too old: it knows CUDA 12.0, this build needs 13.0: install a newer one"));
  CHECK(holds(old, "run with --device cpu"));
}

TEST_CASE("cuda device: a GPU whose blocks have too little shared memory is refused, and told") {
  const Settings settings(false);
  for (const int capability : {75, 86, 89, 120}) {
    simt::set_capability(capability);
    const std::string text = failure([] { open_cuda(1); }, ErrorKind::usage);
    CHECK(holds(text, "--device cuda: cuda:1 (simulated GPU) has compute capability " +
                          std::to_string(capability / 10) + "." + std::to_string(capability % 10) + " and " +
                          (capability == 75 ? "64" : "99") + " KiB of shared memory a block"));
    CHECK(holds(text, "expected 8.0 or later and 163 KiB"));
    CHECK(failure([] { check_device({.device = "cuda", .local_rank = 1}); }, ErrorKind::usage) == text);
    CHECK(holds(text, "run with --device cpu"));
  }
  for (const int capability : {80, 90, 100}) {
    simt::set_capability(capability);
    CHECK(open_cuda()->kind() == DeviceKind::cuda);
  }
}

TEST_CASE("cuda device: no room to open it: who has the memory, not a smaller model") {
  const Settings settings(false);
  simt::set_memory_limit(3);
  check_device({.device = "cuda:2"});  // it opens nothing
  const std::string text = failure([] { open_cuda(2); }, ErrorKind::runtime);
  CHECK(holds(text, "cuda:2 (simulated GPU) has no memory left to be opened: cudaMalloc at "));
  CHECK(holds(text, "cudaErrorMemoryAllocation: out of memory; nvidia-smi shows which processes hold it"));
  CHECK(!holds(text, "smaller model"));
}

TEST_CASE("cuda device: what the simulator does not understand is an error of the tool") {
  const Settings settings(false);
  ::setenv("RANKWRIGHT_SIMT_CAPABILITY", "8.0", 1);
  std::string text;
  std::thread([&] { text = failure([] { open_cuda(); }, ErrorKind::runtime); }).join();
  ::unsetenv("RANKWRIGHT_SIMT_CAPABILITY");
  CHECK(holds(text, "RANKWRIGHT_SIMT_CAPABILITY: expected a compute capability times ten"));
  CHECK(holds(text, "found \"8.0\""));
}

TEST_CASE("cuda device: the inventory names each device, its memory, its bus and its peers") {
  const Settings settings(false);
  simt::set_devices(3);
  simt::set_memory_limit(1 << 20);
  const DeviceInventory all = cuda_inventory();
  REQUIRE(all.devices.size() == 3);
  CHECK(all.why_none.empty());
  for (size_t i = 0; i < 3; ++i) {
    const DeviceInfo& d = all.devices[i];
    CHECK(d.index == static_cast<int>(i));
    CHECK(d.name == "simulated GPU");
    CHECK(d.memory_bytes == 1 << 20);
    CHECK((d.capability_major == 9 && d.capability_minor == 0));
    CHECK(d.multiprocessors > 0);
    CHECK(d.shared_bytes == 227 << 10);
    CHECK(d.pci_bus_id == "0000:0" + std::to_string(i) + ":00.0");
    REQUIRE(d.peers.size() == 3);
    for (size_t j = 0; j < 3; ++j) CHECK(d.peers[j] == (i == j ? PeerLink::self : PeerLink::nvlink));
  }
  CHECK(std::string(peer_link_name(PeerLink::nvlink)) == "nvlink");
  simt::set_devices(0);
  CHECK(cuda_inventory().devices.empty());
  CHECK(holds(cuda_inventory().why_none, "cudaErrorNoDevice"));
}

TEST_CASE("cuda device: memory is zeroed, counted and given back; running out names owner, device and remedy") {
  const Settings settings(true);
  simt::set_memory_limit(100000);
  const auto device = open_cuda(1);
  {
    Arena arena(device->memory());
    auto* x = arena.take_n<float>(5000, MemoryOwner::weights);
    CHECK(simt::device_memory().bytes == 5 * 4096);
    CHECK(device->memory()->free_bytes() == 100000 - 5 * 4096);
    std::vector<float> got(5000, 1.F);
    device->ops().read({.host = got.data(), .device = x, .n = 5000, .t = DType::f32}, device->stream());
    CHECK(std::all_of(got.begin(), got.end(), [](float v) { return v == 0; }));
    const std::string text = failure([&] { arena.take(90000, MemoryOwner::activations); }, ErrorKind::runtime);
    CHECK(
        holds(text, "out of memory on cuda:1 (simulated GPU): activations asked for 87.9 KiB, 77.7 KiB are available"));
    CHECK(holds(text, "held so far: weights 20.0 KiB;"));
    CHECK(holds(text, "--recompute full"));
    arena.take(4096, MemoryOwner::kv);  // the device goes on
    auto* pinned = arena.take_host_n<int32_t>(3, MemoryOwner::data);
    CHECK((pinned[0] == 0 && pinned[2] == 0));
  }
  CHECK(simt::device_memory().bytes == 0);
}

// A small step on the device: ids are uploaded, looked up in a table, added to what was there and scaled.
struct Step {
  static constexpr int64_t kRows = 37, kWidth = 19, kIds = 101;
  Device& device;
  Arena arena;
  float *table, *x, *sum;
  Mirrored<int32_t> ids;

  explicit Step(Device& d) : device(d), arena(d.memory()) {
    table = arena.take_n<float>(kIds * kWidth, MemoryOwner::weights);
    x = arena.take_n<float>(kRows * kWidth, MemoryOwner::activations);
    sum = arena.take_n<float>(kRows * kWidth, MemoryOwner::activations);
    ids = arena.take_mirrored<int32_t>(kRows, MemoryOwner::data);
    auto* values = arena.take_host_n<float>(kIds * kWidth, MemoryOwner::data);
    for (int64_t i = 0; i < kIds * kWidth; ++i) values[i] = static_cast<float>(i * 7919 % 1009) / 512 - 1;
    device.ops().upload({.device = table, .host = values, .bytes = kIds * kWidth * 4}, device.stream());
    device.wait();
  }
  void choose(int round) {
    device.wait();  // the host leaves its bytes until the device has them
    for (int64_t r = 0; r < kRows; ++r) ids.host[r] = static_cast<int32_t>((r * 31 + round * 17 + 5) % kIds);
  }
  void run() {
    const Ops& ops = device.ops();
    const Stream s = device.stream();
    ops.upload({.device = ids.device, .host = ids.host, .bytes = kRows * 4}, s);
    ops.embedding_fwd({.x = x, .table = table, .id = ids.device, .rows = kRows, .c = kWidth, .t = DType::f32}, s);
    ops.add({.y = sum, .a = sum, .b = x, .n = kRows * kWidth, .t = DType::f32}, s);
    ops.scale({.y = sum, .s = 0.75F, .n = kRows * kWidth, .t = DType::f32}, s);
  }
  std::vector<float> result() {
    std::vector<float> got(kRows * kWidth);
    device.ops().read({.host = got.data(), .device = sum, .n = kRows * kWidth, .t = DType::f32}, device.stream());
    return got;
  }
};

TEST_CASE("cuda device: recorded work gives the bits of the same work run directly, with what is uploaded anew") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step direct(*device), recorded(*device);
  std::unique_ptr<RecordedOps> graph;
  for (int round = 0; round < 4; ++round) {
    direct.choose(round);
    recorded.choose(round);
    direct.run();
    if (graph) graph->replay();
    else graph = device->record([&] { recorded.run(); });
    REQUIRE(graph);
    const std::vector<float> want = direct.result(), got = recorded.result();
    CHECK(std::memcmp(want.data(), got.data(), want.size() * 4) == 0);
    CHECK(got.front() != got.back());
  }
}

TEST_CASE("cuda device: what may not be recorded is refused, and the stream works on") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step step(*device);
  step.choose(0);
  // A wait inside.
  const std::string text = failure(
      [&] {
        device->record([&] {
          step.run();
          step.result();
        });
      },
      ErrorKind::runtime);
  CHECK(holds(text, "cudaErrorStreamCaptureUnsupported"));
  int calls = 0;
  CHECK_THROWS_AS(device->record([&] {
    if (++calls == 2) fail(ErrorKind::input, "no more");
  }),
                  Error);
  const std::vector<float> before = step.result();
  const auto graph = device->record([&] { step.run(); });
  CHECK(step.result() != before);
}

TEST_CASE("cuda device: a steady state allocates nothing") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step step(*device);
  const auto clock = device->make_clock();
  step.choose(0);
  const auto graph = device->record([&] { step.run(); });
  const size_t before = simt::device_memory().allocations;
  for (int round = 1; round < 4; ++round) {
    step.choose(round);
    const int begin = clock->mark();
    step.run();
    graph->replay();
    const int end = clock->mark();
    step.result();
    CHECK(clock->seconds(begin, end) > 0);
    clock->clear();
  }
  CHECK(simt::device_memory().allocations == before);
}

TEST_CASE("cuda device: the clock's marks stand between what they were put between") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step step(*device);
  const auto clock = device->make_clock();
  step.choose(0);
  const int first = clock->mark();
  step.run();
  const int second = clock->mark(), third = clock->mark();
  device->wait();
  CHECK((first == 0 && second == 1 && third == 2));
  CHECK(clock->seconds(first, second) > clock->seconds(second, third));
  CHECK(clock->seconds(first, third) >= clock->seconds(first, second));
  CHECK(holds(failure(
                  [&] {
                    clock->mark();
                    clock->seconds(first, 3);
                  },
                  ErrorKind::runtime),
              "cudaErrorNotReady"));
}

TEST_CASE("cuda device: a kernel that fails is named by the next wait") {
  const Settings settings(true);
  const auto device = open_cuda();
  const auto stream = static_cast<cudaStream_t>(device->stream().native);
  simt::enqueue(stream, [] { throw std::runtime_error("a fault in some_kernel, block (1, 0, 0)"); });
  const std::string text = failure([&] { device->wait(); }, ErrorKind::runtime);
  CHECK(holds(text, "cudaErrorLaunchFailure: a fault in some_kernel, block (1, 0, 0)"));
  CHECK(holds(text, "cuda_device.cpp:"));
  device->wait();
  // What is refused when it is put there.
  const std::string refused = failure(
      [&] {
        device->ops().read({.host = nullptr, .device = reinterpret_cast<void*>(16), .n = -1, .t = DType::f32},
                           device->stream());
      },
      ErrorKind::runtime);
  CHECK(holds(refused, "elementwise.cu:"));
}

TEST_CASE("cuda device: memory is copied beside the stream, by any thread") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step step(*device);
  step.choose(0);
  step.run();
  const std::vector<float> want = step.result();
  bool later = false;
  simt::enqueue(static_cast<cudaStream_t>(device->stream().native), [&] { later = true; });
  std::vector<float> got(want.size()), by_other(want.size());
  const auto bytes = static_cast<int64_t>(want.size() * sizeof(float));
  device->memory()->copy_to_host(got.data(), step.sum, bytes);
  std::thread([&] { device->memory()->copy_to_host(by_other.data(), step.sum, bytes); }).join();
  CHECK(!later);
  CHECK((got == want && by_other == want));
  device->memory()->copy_to_host(nullptr, nullptr, 0);
  device->wait();
  CHECK(later);
}

TEST_CASE("cuda device: a copy in pieces through page-locked memory, and straight to memory that is page-locked") {
  const Settings settings(true);
  const auto device = open_cuda();
  DeviceMemory& memory = *device->memory();
  const size_t most = 3 * (size_t{8} << 20) + 5;  // two pieces in flight, one more, and a bit
  std::vector<char> want(most);
  for (size_t i = 0; i < most; ++i) want[i] = static_cast<char>(i * 2654435761U >> 13);
  void *block = memory.allocate(static_cast<int64_t>(most)), *locked = memory.allocate_host(static_cast<int64_t>(most));
  REQUIRE(cudaMemcpyAsync(block, want.data(), most, cudaMemcpyHostToDevice,
                          static_cast<cudaStream_t>(device->stream().native)) == cudaSuccess);
  device->wait();
  for (const size_t n : {size_t{1}, size_t{8} << 20, (size_t{8} << 20) + 1, size_t{16} << 20, most}) {
    std::vector<char> got(most, 'x');
    memory.copy_to_host(got.data(), block, static_cast<int64_t>(n));
    CHECK(std::memcmp(got.data(), want.data(), n) == 0);
    CHECK(std::all_of(got.begin() + static_cast<ptrdiff_t>(n), got.end(), [](char c) { return c == 'x'; }));
  }
  std::vector<char> by_other(most);
  std::thread([&] { open_cuda()->memory()->release_host(memory.allocate_host(1)); }).join();
  std::thread([&] { memory.copy_to_host(by_other.data(), block, static_cast<int64_t>(most)); }).join();
  CHECK(by_other == want);
  memory.copy_to_host(locked, block, static_cast<int64_t>(most));
  CHECK(std::memcmp(locked, want.data(), most) == 0);
  memory.release_host(locked);
  memory.release(block);
}

TEST_CASE("cuda device: another thread takes over after bind_thread") {
  const Settings settings(true);
  const auto device = open_cuda();
  Step step(*device);
  step.choose(1);
  step.run();
  const std::vector<float> once = step.result();
  std::vector<float> twice;
  std::thread other([&] {
    device->bind_thread();
    step.choose(1);
    step.run();
    twice = step.result();
  });
  other.join();
  REQUIRE(twice.size() == once.size());
  for (size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == (once[i] + once[i] / 0.75F) * 0.75F);
}

}  // namespace
}  // namespace rw
