// Which shipped profile a GPU's name means, whoever tells the name: nvidia-smi, CUDA, or the list of PCI devices.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "libcore/plan/measure/host_facts.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// The device type of `known` that this GPU's name means ("NVIDIA H100 80GB HBM3": h100-sxm), of several of a model the
// one nearest in memory and of the same form (a card in a PCIe slot or not). Null when none is.
const DeviceType* match_gpu(const GpuFacts& gpu, const std::vector<DeviceType>& known);
// What of a GPU's name says that it is another part than the device type of its model: "PCIe" of an "A100 80GB PCIe"
// beside a100-80, "NVL", "D"; "" when nothing does.
std::string other_form(const std::string& gpu, const std::string& type);
// Whether the name says that the GPU is a card in a PCIe slot; many names do not say.
bool is_pcie_card(const std::string& gpu);
// Whether two spellings name one GPU.
bool is_same_gpu(const std::string& a, const std::string& b);
// As a [device.NAME] may be called: letters, digits and dashes.
std::string device_name(const std::string& gpu);

// NVLinks of a GPU where all are wired, and bytes/s of one of them, one direction. None: not known.
struct Nvlinks {
  int64_t count = 0;
  double bandwidth = 0;
};
std::optional<Nvlinks> nvlinks_of(const std::string& gpu);

// The GPUs of profiles, each type once.
std::vector<DeviceType> gpu_types(const std::vector<ClusterSpec>& shipped);
// The first cluster with nodes of this device; the GPU types above have one.
struct Shipped {
  const ClusterSpec* cluster = nullptr;
  const NodeType* node = nullptr;
};
Shipped node_with(const std::string& device, const std::vector<ClusterSpec>& shipped);
// What --cluster takes for GPUs with the PCI bus's names ("GA100 [A100 SXM4 40GB]": a100-40; without a memory size all
// of the model), for people: "a100-40 or a100-80", or where none fits "none of their model: ..." and all there are.
std::string shipped_like(const std::vector<BusGpu>& gpus, const std::vector<ClusterSpec>& shipped);

}  // namespace rw
