// Arenas of the host and counting ones; those of a device are tested where there is one.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "libcore/base/error.h"
#include "libcore/device/arena.h"
#include "libcore/device/device_memory.h"
#include "tests/device/messages.h"

namespace rw {
namespace {

using test::failure;
using test::holds;

// A device of the test's own: memory of the host, as much as it is said to have.
class SmallDevice final : public DeviceMemory {
 public:
  explicit SmallDevice(int64_t room) : room_(room) {}
  ~SmallDevice() override { CHECK(held == 0); }
  void* allocate(int64_t bytes) override {
    if (bytes > room_) return nullptr;
    room_ -= bytes;
    ++held;
    return std::calloc(1, static_cast<size_t>(bytes));
  }
  void release(void* block) override {
    --held;
    std::free(block);
  }
  void* allocate_host(int64_t bytes) override {
    if (bytes > (1 << 20)) return nullptr;
    ++held;
    return std::calloc(1, static_cast<size_t>(bytes));
  }
  void release_host(void* block) override {
    --held;
    std::free(block);
  }
  void copy_to_host(void* host, const void* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  int64_t free_bytes() const override { return room_; }
  std::string name() const override { return "small:0"; }
  int held = 0;

 private:
  int64_t room_;
};

TEST_CASE("arena: of the host, a mirrored array is one array") {
  Arena arena;
  const Mirrored<int32_t> ids = arena.take_mirrored<int32_t>(1001, MemoryOwner::data);
  CHECK(ids.host == ids.device);
  CHECK(std::all_of(ids.host, ids.host + 1001, [](int32_t id) { return id == 0; }));
  CHECK(arena.bytes(MemoryOwner::data) == 4096);
  DeviceMemory* none = nullptr;
  Arena of_null(none);
  CHECK(of_null.take_mirrored<int64_t>(1, MemoryOwner::data).host != nullptr);
}

TEST_CASE("arena: a counting one hands out host memory to be read, and counts the rest") {
  Arena arena(ArenaKind::count);
  const Mirrored<int32_t> ids = arena.take_mirrored<int32_t>(3, MemoryOwner::data);
  CHECK(ids.host == ids.device);
  CHECK(ids.host[2] == 0);
  arena.take(int64_t{1} << 50, MemoryOwner::weights);
  CHECK(arena.bytes(MemoryOwner::weights) == int64_t{1} << 50);
  CHECK(arena.total_bytes() == (int64_t{1} << 50) + 4096);
}

TEST_CASE("arena: of a device, blocks lie there, and host arrays beside them") {
  SmallDevice device(1 << 20);
  {
    Arena arena(&device);
    auto* weights = arena.take_n<float>(5000, MemoryOwner::weights);
    CHECK(std::all_of(weights, weights + 5000, [](float w) { return w == 0; }));
    const Mirrored<int32_t> ids = arena.take_mirrored<int32_t>(7, MemoryOwner::data);
    CHECK(ids.host != ids.device);
    CHECK(device.held == 3);
    CHECK(arena.bytes(MemoryOwner::weights) == 5 * 4096);
    CHECK(arena.bytes(MemoryOwner::data) == 4096);  // the device's half alone
    CHECK(device.free_bytes() == (1 << 20) - 6 * 4096);
    arena.take_untouched(1, MemoryOwner::kv);
    arena.take_host(1, MemoryOwner::data);
    CHECK(device.held == 5);
  }
  CHECK(device.held == 0);
}

TEST_CASE("arena: memory that runs out names the owner, the bytes, the device and the cheapest remedy") {
  SmallDevice device(1 << 16);
  Arena arena(&device);
  arena.take(3 * 4096, MemoryOwner::weights);
  const auto text_of = [&](MemoryOwner owner) { return failure([&] { arena.take(60000, owner); }); };
  const std::string text = text_of(MemoryOwner::activations);
  CHECK(holds(text, "out of memory on small:0: activations asked for 58.6 KiB, 52.0 KiB are available"));
  CHECK(holds(text, "held so far: weights 12.0 KiB;"));
  CHECK(holds(text, "--recompute full"));
  CHECK(holds(text_of(MemoryOwner::optimizer), "--zero 1"));
  CHECK(holds(text_of(MemoryOwner::gradients), "--zero 2"));
  CHECK(holds(text_of(MemoryOwner::kv), "--kv-dtype int8"));
  CHECK(holds(failure([&] { arena.take_host(2 << 20, MemoryOwner::data); }), "out of memory: data asked for 2.0 MiB"));
  CHECK(arena.total_bytes() == 3 * 4096);  // what was not given is not held
  CHECK(arena.take(4096, MemoryOwner::kv) != nullptr);
}

}  // namespace
}  // namespace rw
