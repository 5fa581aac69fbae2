// How a host's GPUs and network cards hang together on its PCI bus, and near which cores, as hwloc finds them: no
// driver has to answer for it. The bus does not show NVLink.
#pragma once
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "libcore/plan/measure/gpu_topology.h"

namespace rw {

struct BusGpu {
  std::string bus_id;  // "0000:1b:00.0"
  std::string name;  // "GH100 [H100 SXM5 80GB]"; "PCI device 10de:2330" where this host has no list of names (pci.ids)
  std::string driver;  // of the kernel: "nvidia", "nouveau", "vfio-pci"; "": none has taken it, or a file tells of it
  bool operator==(const BusGpu&) const = default;
};
struct PciTopology {
  std::vector<BusGpu> gpus;  // NVIDIA's, in the order of their addresses, which is nvidia-smi's
  GpuTopology ways;          // between them, and to the RDMA cards; not told: NVLink
  std::string file;          // that tells of them, of whatever host and without drivers; "": this host's bus
};

// This host, or the one of the file that HWLOC_XMLFILE names: Error{input} when that cannot be read. Nothing where
// hwloc cannot look. Touches no GPU; takes tens of ms.
PciTopology read_pci_topology();
// The host of a file of `lstopo --of xml`, without drivers and `file`. Error{input} names `where`.
PciTopology parse_pci_topology(const std::string& xml, const std::string& where);

// The kernel's driver of a device, from ROOT/sys; "" for none.
std::string pci_driver(const std::filesystem::path& root, const std::string& bus_id);
// One spelling of an address: nvidia-smi's "00000000:1B:00.0" -> "0000:1b:00.0". "" for what is none.
std::string pci_bus_id(std::string_view text);

}  // namespace rw
