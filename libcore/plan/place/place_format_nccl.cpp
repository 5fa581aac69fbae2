// NCCL's topology file (NCCL_TOPO_FILE): <system> of <cpu>s, PCIe switches as <pci class="0x060400">, in them GPUs
// (<pci class="0x030200"><gpu><nvlink>) and NICs (<pci class="0x020000"><nic><net>), as NCCL_TOPO_DUMP_FILE writes it.
// NCCL finds GPUs and NICs by their bus ids and fills in attributes that are not there from the system.
#include <fmt/core.h>

#include <cmath>

#include "libcore/base/error.h"
#include "libcore/plan/place/place_format.h"

namespace rw {
namespace {

// Transfer rate of a lane by the bytes/s of 16 in one direction (PCI-SIG: generations 3 to 6).
const char* lane_rate(double bandwidth) {
  if (bandwidth > 100e9) return "64.0 GT/s PCIe";
  if (bandwidth > 50e9) return "32.0 GT/s PCIe";
  if (bandwidth > 25e9) return "16.0 GT/s PCIe";
  return "8.0 GT/s PCIe";
}

// Links by a device's bytes/s in one direction: 25 GB/s each up to NVLink 4 (450 GB/s), 50 GB/s in NVLink 5 (NVIDIA
// data sheets of A100, H100, B200).
int64_t nvlinks(double bandwidth) { return std::llround(bandwidth / (bandwidth > 450e9 ? 50e9 : 25e9)); }

struct BusIds {
  const std::vector<std::string>& given;
  int first;  // bus number of the first when none are given
  std::string at(int64_t i) const {
    return given.empty() ? fmt::format("0000:{:02x}:00.0", first + i) : given[static_cast<size_t>(i)];
  }
};

void check_count(const std::vector<std::string>& ids, int64_t expected, const char* flag, const NodeType& n) {
  if (!ids.empty() && static_cast<int64_t>(ids.size()) != expected)
    fail(ErrorKind::usage, "{} is given {} times, but node {} has {}; expected as many", flag, ids.size(), n.name,
         expected);
}

}  // namespace

std::string nccl_topo_text(const PlaceFile& f) {
  const std::vector<UsedNode> used = used_nodes(f);
  const NodeType& n = node_type(f, used.front().node);
  for (const UsedNode& u : used)
    if (&node_type(f, u.node) != &n)
      fail(ErrorKind::usage, "--format nccl-topo describes one node, but this placement uses {} and {}", n.name,
           node_type(f, u.node).name);
  if (f.cluster.device_of(n).compute_units <= 1)
    fail(ErrorKind::usage, "--format nccl-topo describes GPUs, but device {} is none (compute-units = 1)", n.device);
  if (n.devices > 64 || n.nics > 64)
    fail(ErrorKind::usage, "--format nccl-topo: node {} has {} devices and {} NICs, expected at most 64", n.name,
         n.devices, n.nics);
  const PlaceNames& names = f.names;
  check_count(names.gpu_bus_ids, n.devices, "--gpu-bus-id", n);
  check_count(names.nic_bus_ids, n.nics, "--nic-bus-id", n);
  check_count(names.nics, n.nics, "--nic", n);
  const BusIds gpus{names.gpu_bus_ids, 0x10}, nics{names.nic_bus_ids, 0x60};
  const int64_t domain = n.link_domain > 0 ? n.link_domain : n.devices;

  std::string text = "<system version=\"1\">\n";
  if (names.gpu_bus_ids.empty() || names.nic_bus_ids.empty())
    text +=
        "  <!-- Bus ids are made up where --gpu-bus-id (nvidia-smi: pci.bus_id) and --nic-bus-id were not given:\n"
        "       NCCL finds devices by them, so they must be this machine's. -->\n";
  const std::string rate = fmt::format("link_speed=\"{}\" link_width=\"16\"", lane_rate(n.pcie_bandwidth));
  for (int64_t cpu = 0; cpu < names.sockets; ++cpu) {
    text += fmt::format("  <cpu numaid=\"{}\" arch=\"x86_64\">\n", cpu);
    for (int64_t d = 0; d < n.devices; ++d) {
      if (d * names.sockets / n.devices != cpu) continue;
      // A switch of its own for each GPU, with the NICs that are nearest to it; its bus is out of the devices' way.
      text += fmt::format("    <pci busid=\"ffff:{:02x}:00.0\" class=\"0x060400\" {}>\n", d, rate);
      text +=
          fmt::format("      <pci busid=\"{}\" class=\"0x030200\" {}>\n        <gpu dev=\"{}\"", gpus.at(d), rate, d);
      if (n.link == "nvswitch") {
        text += fmt::format(
            ">\n          <nvlink target=\"fffffff:ff:ff.0\" count=\"{}\" tclass=\"0x068000\"/>\n        </gpu>\n",
            nvlinks(n.link_bandwidth));
      } else if (n.link == "nvlink" && domain > 1) {
        text += ">\n";
        for (int64_t peer = d / domain * domain; peer < std::min(n.devices, (d / domain + 1) * domain); ++peer)
          if (peer != d)
            text += fmt::format("          <nvlink target=\"{}\" count=\"{}\" tclass=\"0x030200\"/>\n", gpus.at(peer),
                                std::max<int64_t>(1, nvlinks(n.link_bandwidth) / (domain - 1)));
        text += "        </gpu>\n";
      } else {
        text += "/>\n";
      }
      text += "      </pci>\n";
      for (int64_t i = 0; i < n.nics; ++i) {
        if (i * n.devices / n.nics != d) continue;
        text += fmt::format(
            "      <pci busid=\"{}\" class=\"0x020000\" {}>\n        <nic>\n          <net name=\"{}\" dev=\"{}\" "
            "speed=\"{}\" port=\"1\" gdr=\"1\"/>\n        </nic>\n      </pci>\n",
            nics.at(i), rate, names.nics.empty() ? fmt::format("mlx5_{}", i) : names.nics[static_cast<size_t>(i)], i,
            std::llround(n.nic_bandwidth * 8 / 1e6));
      }
      text += "    </pci>\n";
    }
    text += "  </cpu>\n";
  }
  return text + "</system>\n";
}

}  // namespace rw
