// The backends that open_device chooses from.
#pragma once
#include <memory>

#include "libcore/device/device.h"

namespace rw {

// Error{usage} for what is not cpu, cuda or cuda:N; whether such a device is here is not asked.
void check_device_name(const std::string& device);
std::unique_ptr<Device> open_cpu_device(int threads);
// Error{usage} for what open_cuda_device would refuse so.
void check_cuda_device(const DeviceWish& wish, int index);
// `index` -1: the one that the local rank falls on. Where the build has no such backend: Error{usage}.
std::unique_ptr<Device> open_cuda_device(const DeviceWish& wish, int index);

}  // namespace rw
