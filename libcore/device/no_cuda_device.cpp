// In builds without the CUDA backend.
#include "libcore/base/error.h"
#include "libcore/device/inventory.h"
#include "libcore/device/open_device.h"

namespace rw {

void check_cuda_device(const DeviceWish& wish, int) {
  fail(ErrorKind::usage,
       "--device {}: this build has no CUDA backend; configure it with -Dcuda=enabled where the CUDA toolkit is (see "
       "docs/cuda.md), or run with --device cpu",
       wish.device);
}

std::unique_ptr<Device> open_cuda_device(const DeviceWish& wish, int index) {
  check_cuda_device(wish, index);
  return nullptr;  // not reached: it has thrown
}

DeviceInventory cuda_inventory() { return {.devices = {}, .why_none = "this build has no CUDA backend (-Dcuda)"}; }

}  // namespace rw
