// GPUs that the PCI bus has and that do not answer: what they are, why, and what to do about it.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/measure/pci_topology.h"

namespace rw {

// In a few words: "2 x GH100 [H100 SXM5 80GB] at 0000:1b:00.0, 0000:43:00.0"; the models one after another. "" for
// none.
std::string bus_gpus_text(const std::vector<BusGpu>& gpus);

// The GPUs of the bus whose addresses are not among the `listed` of nvidia-smi. None where it lists a GPU without its
// address (then which it lists is not known).
std::vector<BusGpu> unlisted_gpus(const std::vector<BusGpu>& on_bus, const std::vector<std::string>& listed);

// The GPUs of a bus, and the file (HWLOC_XMLFILE) that tells of it; "": this host's bus.
struct SilentGpus {
  std::vector<BusGpu> gpus;
  std::string file;
  bool smi_is_late = false;  // nvidia-smi was ended before it answered
};
struct GpuSilence {
  std::string why;     // "no kernel driver has taken them"
  std::string remedy;  // "install NVIDIA's driver, ..."
};
// Of the drivers that have taken them; both "" without GPUs, unless nvidia-smi is late, which is then all there is to
// say. Several drivers: all are told, once each. A file tells nothing of drivers: then the file is the reason.
GpuSilence gpu_silence(const SilentGpus& silent);

}  // namespace rw
