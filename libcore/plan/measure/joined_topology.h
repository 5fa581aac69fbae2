// One topology of what nvidia-smi and the PCI bus tell of the same host.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/measure/pci_topology.h"

namespace rw {

// nvidia-smi's `told`, and from the bus what it leaves out: cores and NUMA nodes of its GPUs, the network cards where
// it has no column of them, the cards' cores. Where it tells nothing, the bus alone, of the GPUs that `bus_ids` names
// (none named: of all). `bus_ids`: the addresses of the GPUs that nvidia-smi lists, in its order, any spelling; where
// they are missing the GPUs are the bus's when they are as many.
GpuTopology joined_topology(const GpuTopology& told, const std::vector<std::string>& bus_ids, const PciTopology& bus);

}  // namespace rw
