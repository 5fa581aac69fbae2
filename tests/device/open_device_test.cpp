// What every build says of devices, and the host as one.
#include <doctest/doctest.h>

#include <string>

#include "libcore/base/error.h"
#include "libcore/device/device.h"
#include "libcore/device/inventory.h"
#include "libcore/device/open_device.h"
#include "tests/device/messages.h"

namespace rw {
namespace {

using test::holds;

std::string refusal(const DeviceWish& wish) {
  return test::failure([&] { open_device(wish); }, ErrorKind::usage);
}

TEST_CASE("open_device: a device that has no such name") {
  for (const char* device : {"", "gpu", "cuda0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "CUDA", "cpu:0"}) {
    CAPTURE(device);
    const std::string text = std::string("expected cpu, cuda or cuda:N, found '") + device + "'";
    CHECK(holds(refusal({.device = device}), text));
    CHECK(holds(test::failure([&] { check_device({.device = device}); }, ErrorKind::usage), text));
    CHECK(holds(test::failure([&] { check_device_name(device); }, ErrorKind::usage), text));
  }
}

TEST_CASE("open_device: without a GPU, what is missing and how to go on") {
  const DeviceInventory all = cuda_inventory();
  CHECK(all.devices.empty() == !all.why_none.empty());
  if (!all.devices.empty()) return;
  for (const char* device : {"cuda", "cuda:0"}) {
    const std::string text = refusal({.device = device});
    CHECK(holds(text, std::string("--device ") + device + ": "));
    CHECK(holds(text, "run with --device cpu"));
    CHECK(test::failure([&] { check_device({.device = device}); }, ErrorKind::usage) == text);
    CHECK(holds(text, RW_CUDA_BUILT != 0 ? "no CUDA device: " + all.why_none
                                         : "no CUDA backend; configure it with -Dcuda=enabled"));
  }
}

TEST_CASE("cpu device: computes where it is called, in the host's memory") {
  const auto device = open_device({.device = "cpu", .threads = 2});
  CHECK(device->kind() == DeviceKind::cpu);
  CHECK(device->name() == device->ops().name);
  CHECK(device->memory() == nullptr);
  CHECK(device->stream().threads == 2);
  CHECK(device->stream().native == nullptr);
  int runs = 0;
  CHECK(device->record([&] { ++runs; }) == nullptr);
  CHECK(runs == 1);
  device->bind_thread();
  device->wait();
}

TEST_CASE("cpu device: its clock's marks rise, and begin anew") {
  const auto clock = open_device({.device = "cpu"})->make_clock();
  for (int round = 0; round < 2; ++round) {
    const int first = clock->mark(), second = clock->mark(), third = clock->mark();
    CHECK((first == 0 && second == 1 && third == 2));
    CHECK(clock->seconds(first, second) >= 0);
    CHECK(clock->seconds(first, third) ==
          doctest::Approx(clock->seconds(first, second) + clock->seconds(second, third)));
    clock->clear();
  }
}

}  // namespace
}  // namespace rw
