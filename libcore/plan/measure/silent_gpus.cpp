#include "libcore/plan/measure/silent_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "libcore/plan/measure/host_facts.h"

namespace rw {
namespace {

GpuSilence silence_of(const std::string& driver) {
  if (driver.empty())
    return {"no kernel driver has taken them", "install NVIDIA's driver, and load it: nvidia-smi must list the GPUs"};
  if (driver == "nvidia")
    return {
        "NVIDIA's driver has taken them, but nvidia-smi is not found or fails",
        "look at what nvidia-smi prints (after an update of the driver the host must be started again); a container "
        "must be started with its GPUs (docker run --gpus all)"};
  if (driver == "nouveau")
    return {"the driver nouveau has taken them, which CUDA cannot use",
            "install NVIDIA's driver, keep nouveau from loading, and start the host again"};
  if (driver == "vfio-pci")
    return {"vfio-pci keeps them for virtual machines", "run inside the machine that has them, or give them back"};
  return {"the driver " + driver + " has taken them", "give them to NVIDIA's driver"};
}

}  // namespace

std::string bus_gpus_text(const std::vector<BusGpu>& gpus) {
  std::map<std::string, std::vector<std::string>> models;
  for (const BusGpu& gpu : gpus) models[gpu.name].push_back(gpu.bus_id);
  std::string text;
  for (const auto& [name, ids] : models) {
    text += fmt::format("{}{} x {} at ", text.empty() ? "" : "; ", ids.size(), name);
    for (size_t i = 0; i < ids.size(); ++i) text += (i == 0 ? "" : ", ") + ids[i];
  }
  return text;
}

std::vector<BusGpu> unlisted_gpus(const std::vector<BusGpu>& on_bus, const std::vector<std::string>& listed) {
  std::vector<BusGpu> unlisted;
  if (std::count(listed.begin(), listed.end(), "") > 0) return unlisted;
  std::copy_if(on_bus.begin(), on_bus.end(), std::back_inserter(unlisted),
               [&](const BusGpu& gpu) { return std::count(listed.begin(), listed.end(), gpu.bus_id) == 0; });
  return unlisted;
}

GpuSilence gpu_silence(const SilentGpus& silent) {
  if (silent.smi_is_late)
    return {fmt::format("nvidia-smi was ended when it had not answered after {} seconds, as when a GPU or its driver "
                        "hangs",
                        kCommandLimitS),
            "look for NVRM and Xid in the kernel's log (dmesg); a GPU that hangs comes back when the host is started "
            "again"};
  if (!silent.gpus.empty() && !silent.file.empty())
    return {
        fmt::format("the PCI bus is that of the file {} (HWLOC_XMLFILE), which tells nothing of drivers", silent.file),
        "look at nvidia-smi on the host that the file describes, or unset HWLOC_XMLFILE to see this host's bus"};
  std::set<std::string> drivers;
  for (const BusGpu& gpu : silent.gpus) drivers.insert(gpu.driver);
  GpuSilence all;
  for (const std::string& driver : drivers) {
    const GpuSilence one = silence_of(driver);
    all.why += (all.why.empty() ? "" : "; ") + one.why;
    all.remedy += (all.remedy.empty() ? "" : "; ") + one.remedy;
  }
  return all;
}

}  // namespace rw
