#include <cuda_runtime_api.h>

#include <cstdlib>

#include "libcore/base/error.h"
#include "libcore/device/cuda_errors.h"
#include "libcore/device/inventory.h"

namespace rw {
namespace {

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// What the runtime says, and where it is the driver, what of it.
std::string why_none(cudaError_t code) {
  const std::string words = fmt::format("{}: {}", cudaGetErrorName(code), cudaGetErrorString(code));
  if (code != cudaErrorInsufficientDriver) return words;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return words + " (no NVIDIA driver is installed)";
  return fmt::format("{} (the NVIDIA driver is too old: it knows CUDA {}, this build needs {}: install a newer one)",
                     words, version_text(driver), version_text(runtime));
}

// NVLink carries atomics of one device on another one's memory, PCIe does not (CUDA Runtime API, cudaDeviceP2PAttr).
PeerLink link_between(int from, int to) {
  if (from == to) return PeerLink::self;
  int direct = 0, atomics = 0;
  RW_CUDA(cudaDeviceCanAccessPeer(&direct, from, to));
  if (direct == 0) return PeerLink::host;
  RW_CUDA(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
  return atomics != 0 ? PeerLink::nvlink : PeerLink::pcie;
}

DeviceInfo info_of(int index, int n) {
  cudaDeviceProp properties{};
  RW_CUDA(cudaGetDeviceProperties(&properties, index));
  char bus[32] = {};
  RW_CUDA(cudaDeviceGetPCIBusId(bus, sizeof bus, index));
  DeviceInfo info{.index = index,
                  .name = properties.name,
                  .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
                  .capability_major = properties.major,
                  .capability_minor = properties.minor,
                  .multiprocessors = properties.multiProcessorCount,
                  .shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
                  .pci_bus_id = bus,
                  .peers = {}};
  for (int peer = 0; peer < n; ++peer) info.peers.push_back(link_between(index, peer));
  return info;
}

// A GPU's streams share 8 hardware queues unless told otherwise, and a kernel that waits for a peer holds up what comes
// behind it in its queue, whatever its stream. The driver reads this when the first call makes it start.
void ask_for_queues() {
  static const int once = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  static_cast<void>(once);
}

}  // namespace

DeviceInventory cuda_inventory() {
  ask_for_queues();
  return as_errors([] {
    DeviceInventory all;
    int n = 0;
    if (const cudaError_t code = cudaGetDeviceCount(&n); code != cudaSuccess || n == 0) {
      all.why_none = why_none(code == cudaSuccess ? cudaErrorNoDevice : code);
      cudaGetLastError();
      return all;
    }
    for (int i = 0; i < n; ++i) all.devices.push_back(info_of(i, n));
    return all;
  });
}

}  // namespace rw
