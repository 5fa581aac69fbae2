// The devices of this machine, for who plans or checks: nothing is opened or left running.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace rw {

// How a device gets at another one's memory. host: not itself; copies go through the host's memory.
enum class PeerLink : uint8_t { self, host, pcie, nvlink };
const char* peer_link_name(PeerLink link);

struct DeviceInfo {
  int index = 0;  // as in --device cuda:N
  std::string name;
  int64_t memory_bytes = 0;
  int capability_major = 0, capability_minor = 0;  // 9, 0: sm_90
  int multiprocessors = 0;
  int64_t shared_bytes = 0;     // that a kernel's block may ask for
  std::string pci_bus_id;       // "0000:1b:00.0", as the operating system names it
  std::vector<PeerLink> peers;  // of each device
};

struct DeviceInventory {
  std::vector<DeviceInfo> devices;  // none without a GPU, or in a build without a GPU's backend
  std::string why_none;             // "" where there are some
};
DeviceInventory cuda_inventory();

}  // namespace rw
