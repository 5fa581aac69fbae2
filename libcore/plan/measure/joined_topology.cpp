#include "libcore/plan/measure/joined_topology.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace rw {
namespace {

// Which of the bus's each GPU is; none where that cannot be told of all.
std::optional<std::vector<size_t>> places(const std::vector<std::string>& bus_ids, const PciTopology& bus) {
  std::vector<size_t> found;
  for (const std::string& id : bus_ids) {
    const auto at =
        std::find_if(bus.gpus.begin(), bus.gpus.end(), [&](const BusGpu& gpu) { return gpu.bus_id == pci_bus_id(id); });
    if (at == bus.gpus.end()) return std::nullopt;
    found.push_back(static_cast<size_t>(at - bus.gpus.begin()));
  }
  return found;
}

std::vector<size_t> all_of(const PciTopology& bus) {
  std::vector<size_t> all(bus.gpus.size());
  std::iota(all.begin(), all.end(), size_t{0});
  return all;
}

GpuTopology part_of(const GpuTopology& whole, const std::vector<size_t>& chosen) {
  GpuTopology part = whole;
  part.gpus.clear();
  for (const size_t from : chosen) {
    GpuNeighbours gpu = whole.gpus[from];
    gpu.gpus.clear();
    for (const size_t to : chosen) gpu.gpus.push_back(whole.gpus[from].gpus[to]);
    part.gpus.push_back(std::move(gpu));
  }
  return part;
}

}  // namespace

GpuTopology joined_topology(const GpuTopology& told, const std::vector<std::string>& bus_ids, const PciTopology& bus) {
  const size_t n = told.gpus.size();
  if (n == 0) {
    if (bus_ids.empty()) return bus.ways;
    const auto listed = places(bus_ids, bus);
    return listed ? part_of(bus.ways, *listed) : GpuTopology{};
  }
  GpuTopology out = told;
  std::optional<std::vector<size_t>> at;
  if (bus_ids.size() == n) at = places(bus_ids, bus);
  else if (bus.gpus.size() == n) at = all_of(bus);
  if (at) {
    const bool has_cards = !told.nics.empty();
    if (!has_cards) out.nics = bus.ways.nics;
    for (size_t i = 0; i < n; ++i) {
      const GpuNeighbours& seen = bus.ways.gpus[(*at)[i]];
      if (out.gpus[i].cores.empty()) out.gpus[i].cores = seen.cores;
      if (out.gpus[i].numa_node < 0) out.gpus[i].numa_node = seen.numa_node;
      if (!has_cards) out.gpus[i].nics = seen.nics;
    }
  }
  out.nic_cores.assign(out.nics.size(), {});
  for (size_t i = 0; i < out.nics.size(); ++i) {
    const auto card = std::find(bus.ways.nics.begin(), bus.ways.nics.end(), out.nics[i]);
    if (card != bus.ways.nics.end())
      out.nic_cores[i] = bus.ways.nic_cores[static_cast<size_t>(card - bus.ways.nics.begin())];
  }
  return out;
}

}  // namespace rw
