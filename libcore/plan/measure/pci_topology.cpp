#include "libcore/plan/measure/pci_topology.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <tuple>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/plan/measure/pci_names.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Of pci.ids: the maker, and the classes of display controllers with and without a screen.
constexpr unsigned kNvidia = 0x10de, kVga = 0x0300, k3d = 0x0302;

using PciAttributes = hwloc_obj_attr_u::hwloc_pcidev_attr_s;
using Topology = std::unique_ptr<hwloc_topology, void (*)(hwloc_topology*)>;

// Null when hwloc cannot be had.
Topology new_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) raw = nullptr;
  Topology topology(raw, hwloc_topology_destroy);
  if (raw == nullptr) return topology;
  // Those that start a GPU's or a display's library, or run on every core in turn (x86), or may not run in two threads
  // and leak (pci: libpciaccess; without it hwloc reads the kernel's files). Not all are in every build of hwloc: it
  // refuses the name then.
  for (const char* part : {"gl", "opencl", "cuda", "nvml", "rsmi", "levelzero", "x86", "pci"})
    hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, part);
  hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
  // The cores near a GPU are the same whether this process may run there or not.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  return topology;
}

[[noreturn]] void refuse_xml(const std::string& where) {
  fail(ErrorKind::input,
       "{}: expected a host's topology in hwloc's XML, found none that hwloc can read; write it anew: lstopo --of xml "
       "FILE",
       where);
}

// The numbers of a bitmap, rising.
std::vector<int64_t> numbers(hwloc_const_bitmap_t set) {
  std::vector<int64_t> out;
  if (set == nullptr || hwloc_bitmap_weight(set) < 0) return out;  // none, or without end
  for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i)) out.push_back(i);
  return out;
}

std::string address(const PciAttributes& pci) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", static_cast<unsigned>(pci.domain), unsigned{pci.bus},
                     unsigned{pci.dev}, unsigned{pci.func});
}

struct Device {
  hwloc_obj_t object = nullptr;      // the function on the bus
  std::string name;                  // of a card: "mlx5_0"
  std::vector<hwloc_obj_t> above;    // the bridges, the host's first, then itself
  std::vector<int64_t> cores;        // near; none: not told
  std::optional<int64_t> numa_node;  // not told: near several
};

// The one node near `place`; of nodes that share its cores (DRAM and HBM) the first.
std::optional<int64_t> near_node(hwloc_topology_t topology, hwloc_obj_t place) {
  std::optional<int64_t> first;
  hwloc_const_cpuset_t cores = nullptr;
  for (const int64_t node : numbers(place->nodeset)) {
    const hwloc_obj_t object = hwloc_get_numanode_obj_by_os_index(topology, static_cast<unsigned>(node));
    if (object == nullptr || hwloc_bitmap_iszero(object->cpuset)) continue;
    if (first && !hwloc_bitmap_isequal(cores, object->cpuset)) return std::nullopt;
    if (!first) first = node, cores = object->cpuset;
  }
  return first;
}

Device device_of(hwloc_topology_t topology, hwloc_obj_t object, std::string name) {
  Device d{.object = object, .name = std::move(name)};
  for (hwloc_obj_t o = object; o != nullptr && hwloc_obj_type_is_io(o->type); o = o->parent) d.above.push_back(o);
  std::reverse(d.above.begin(), d.above.end());
  const hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(topology, object);
  if (place == nullptr) return d;
  d.numa_node = near_node(topology, place);
  // All cores of a host with several nodes: the firmware does not say where the device is.
  if (d.numa_node || place != hwloc_get_root_obj(topology)) d.cores = numbers(place->cpuset);
  return d;
}

// In the words of nvidia-smi's legend.
std::string way(const Device& a, const Device& b) {
  if (a.object == b.object) return "X";
  size_t shared = 0;
  while (shared < std::min(a.above.size(), b.above.size()) && a.above[shared] == b.above[shared]) ++shared;
  if (shared == 0) return a.numa_node && a.numa_node == b.numa_node ? "NODE" : "SYS";
  const hwloc_obj_t meeting = a.above[shared - 1];
  if (meeting->type == HWLOC_OBJ_BRIDGE && meeting->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST) return "PHB";
  // A switch is a bridge with bridges below it: two steps from the device up is the same switch, as NCCL counts too.
  constexpr size_t kOneSwitch = 2;
  return std::max(a.above.size(), b.above.size()) - shared <= kOneSwitch ? "PIX" : "PXB";
}

std::string gpu_name(hwloc_obj_t object, std::string_view pci_ids) {
  const char* told = hwloc_obj_get_info_by_name(object, "PCIDevice");
  if (told != nullptr && *told != '\0') return told;
  const PciAttributes& pci = object->attr->pcidev;
  const std::string name = pci_name(pci_ids, {.vendor = pci.vendor_id, .device = pci.device_id});
  if (!name.empty()) return name;
  return fmt::format("PCI device {:04x}:{:04x}", unsigned{pci.vendor_id}, unsigned{pci.device_id});
}

bool by_address(const Device& a, const Device& b) {
  const auto key = [](const Device& d) {
    const PciAttributes& p = d.object->attr->pcidev;
    return std::tuple(static_cast<unsigned>(p.domain), p.bus, p.dev, p.func);
  };
  return std::tuple(key(a), std::string_view(a.name)) < std::tuple(key(b), std::string_view(b.name));
}

std::vector<Device> gpus_of(hwloc_topology_t topology, std::string_view pci_ids) {
  std::vector<Device> found;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_pcidev(topology, o)) != nullptr;) {
    const PciAttributes& pci = o->attr->pcidev;
    if (pci.vendor_id == kNvidia && (pci.class_id == kVga || pci.class_id == k3d))
      found.push_back(device_of(topology, o, gpu_name(o, pci_ids)));
  }
  std::sort(found.begin(), found.end(), by_address);
  return found;
}

// RDMA devices, as nvidia-smi lists them. Plain Ethernet is left out: which of its interfaces carries a job and which
// is for the administrator, the bus does not tell.
std::vector<Device> cards_of(hwloc_topology_t topology) {
  std::vector<Device> found;
  for (hwloc_obj_t o = nullptr; (o = hwloc_get_next_osdev(topology, o)) != nullptr;) {
    if (o->attr->osdev.type != HWLOC_OBJ_OSDEV_OPENFABRICS || o->name == nullptr) continue;
    hwloc_obj_t function = o->parent;
    while (function != nullptr && function->type == HWLOC_OBJ_OS_DEVICE) function = function->parent;
    // Without a card below it (rxe, siw) it is software.
    if (function != nullptr && function->type == HWLOC_OBJ_PCI_DEVICE)
      found.push_back(device_of(topology, function, o->name));
  }
  std::sort(found.begin(), found.end(), by_address);
  return found;
}

PciTopology facts_of(hwloc_topology_t topology, std::string_view pci_ids) {
  const std::vector<Device> gpus = gpus_of(topology, pci_ids), cards = cards_of(topology);
  PciTopology out;
  out.ways.knows_nvlink = false;
  for (const Device& gpu : gpus) {
    out.gpus.push_back({.bus_id = address(gpu.object->attr->pcidev), .name = gpu.name, .driver = {}});
    GpuNeighbours near{.gpus = {}, .nics = {}, .cores = gpu.cores, .numa_node = gpu.numa_node.value_or(-1)};
    for (const Device& other : gpus) near.gpus.push_back(way(gpu, other));
    for (const Device& card : cards) near.nics.push_back(way(gpu, card));
    out.ways.gpus.push_back(std::move(near));
  }
  for (const Device& card : cards) out.ways.nics.push_back(card.name), out.ways.nic_cores.push_back(card.cores);
  return out;
}

}  // namespace

std::string pci_bus_id(std::string_view text) {
  // Digits of the domain: the kernel writes four and more where it must, nvidia-smi always eight.
  constexpr size_t kLeast = 4, kMost = 8;
  const size_t domain = text.find(':');
  if (domain == std::string_view::npos || domain < kLeast || domain > kMost || text.size() != domain + 8 ||
      text[domain + 3] != ':' || text[domain + 6] != '.')
    return {};
  std::string id;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_mark = i == domain || i == domain + 3 || i == domain + 6;
    if (is_mark || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) id += c;
    else if (c >= 'A' && c <= 'F') id += static_cast<char>(c - 'A' + 'a');
    else return {};
  }
  return id.substr(std::min(id.find_first_not_of('0'), domain - kLeast));
}

std::string pci_driver(const fs::path& root, const std::string& bus_id) {
  std::error_code none;
  return fs::read_symlink(root / "sys/bus/pci/devices" / bus_id / "driver", none).filename().string();
}

namespace {

// hwloc 2.9 crashes on an object with a set of cores or nodes that has not the complete one beside it.
bool lacks_complete_set(std::string_view xml) {
  for (size_t at = xml.find("<object "); at != std::string_view::npos; at = xml.find("<object ", at + 1)) {
    const std::string_view tag = xml.substr(at, xml.find('>', at) - at);
    const auto has = [&](const char* name) { return tag.find(fmt::format(" {}=", name)) != std::string_view::npos; };
    if ((has("cpuset") && !has("complete_cpuset")) || (has("nodeset") && !has("complete_nodeset"))) return true;
  }
  return false;
}

}  // namespace

PciTopology parse_pci_topology(const std::string& xml, const std::string& where) {
  // hwloc 2.9 with libxml2 crashes on a document type without a SYSTEM name, such as a web page's.
  const size_t type = xml.find("<!DOCTYPE");
  if (type != std::string::npos && !std::string_view(xml).substr(type).starts_with("<!DOCTYPE topology SYSTEM "))
    refuse_xml(where);
  if (lacks_complete_set(xml)) refuse_xml(where);
  const Topology topology = new_topology();
  // hwloc counts the zero at the end.
  if (topology == nullptr ||
      hwloc_topology_set_xmlbuffer(topology.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
      hwloc_topology_load(topology.get()) != 0)
    refuse_xml(where);
  return facts_of(topology.get(), "");
}

PciTopology read_pci_topology() {
  // hwloc follows the variable itself, but takes this host without a word when the file is bad.
  if (const char* file = std::getenv("HWLOC_XMLFILE"); file != nullptr && *file != '\0') {
    std::string xml;
    try {
      xml = read_regular_file(file);
    } catch (const Error& e) {
      fail(e.kind(), "HWLOC_XMLFILE: {}", e.what());
    }
    PciTopology facts = parse_pci_topology(xml, fmt::format("HWLOC_XMLFILE={}", file));
    facts.file = file;
    return facts;
  }
  const Topology topology = new_topology();
  if (topology == nullptr || hwloc_topology_load(topology.get()) != 0) return {};
  PciTopology facts = facts_of(topology.get(), read_pci_ids("/"));
  for (BusGpu& gpu : facts.gpus) gpu.driver = pci_driver("/", gpu.bus_id);
  return facts;
}

}  // namespace rw
