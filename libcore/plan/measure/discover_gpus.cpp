// The part of dplan discover for hosts with GPUs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/error.h"
#include "libcore/base/units.h"
#include "libcore/plan/measure/discover.h"
#include "libcore/plan/measure/gpu_profile.h"
#include "libcore/plan/measure/host_links.h"
#include "libcore/plan/measure/silent_gpus.h"

namespace rw {
namespace {

struct Profile {
  DeviceType type;
  Shipped like;
  std::string form;      // what says that the GPU is another part of the model; "": it is this one
  bool is_known = true;  // not: no profile has the model, the nearest in memory stands in
  bool is_this() const { return is_known && form.empty(); }
};

Profile profile_of(const GpuFacts& gpu, const std::vector<ClusterSpec>& shipped) {
  const std::vector<DeviceType> known = gpu_types(shipped);
  if (known.empty())
    fail(ErrorKind::input,
         "expected GPU profiles in configs/clusters, found none; set RANKWRIGHT_CONFIGS to the configs folder");
  const DeviceType* type = match_gpu(gpu, known);
  const bool is_known = type != nullptr;
  if (!is_known) {
    const auto distance = [&](const DeviceType& d) {
      return std::abs(std::log2(static_cast<double>(gpu.memory) / static_cast<double>(d.memory)));
    };
    type = &*std::min_element(known.begin(), known.end(),
                              [&](const DeviceType& a, const DeviceType& b) { return distance(a) < distance(b); });
  }
  return {.type = *type,
          .like = node_with(type->name, shipped),
          .form = is_known ? other_form(gpu.name, type->name) : "",
          .is_known = is_known};
}

std::string origin_note(const Profile& profile, const std::string& links) {
  const std::string& name = profile.type.name;
  if (!profile.is_known)
    return fmt::format(
        "no shipped profile knows this GPU: all but memory and count are those of {}, the nearest in memory, and "
        "guesses: put in the data sheet's",
        name);
  if (!profile.form.empty())
    return fmt::format(
        "the shipped profile {} is of another part of this GPU's model (the name says {}): peaks, bandwidths and price "
        "are that one's, and guesses: put in the data sheet's",
        name, profile.form);
  return fmt::format("peaks, bandwidths, price{} are those of {} in {}", links, name, profile.like.cluster->where);
}

std::string bus_note(const HostFacts& host) {
  return fmt::format("the PCI bus is that of the file {} (HWLOC_XMLFILE), not this host's", host.bus_file);
}

// A container shows the bus of the whole host, and a GPU that has fallen off the bus is not told apart from one that
// was not given.
std::string unlisted_note(const HostFacts& host) {
  std::vector<std::string> listed;
  for (const GpuFacts& gpu : host.gpus) listed.push_back(gpu.bus_id);
  const std::vector<BusGpu> others = unlisted_gpus(host.bus_gpus, listed);
  if (others.empty() || !host.bus_file.empty()) return "";
  return fmt::format(
      "not in this file, on the PCI bus but not told of by {}: {}. They are another container's or virtual machine's, "
      "or have no driver, or do not answer (look for Xid in the kernel's log: dmesg)",
      host.gpus_from, bus_gpus_text(others));
}

}  // namespace

Discovered gpu_cluster(const HostFacts& host, const std::vector<ClusterSpec>& shipped) {
  const GpuFacts& gpu = host.gpus.front();
  const Profile profile = profile_of(gpu, shipped);
  const NodeType& like = *profile.like.node;
  Discovered out{.gpu = gpu.name};
  DeviceType device = profile.type;
  NodeType node = like;
  if (!profile.is_this()) device.name = device_name(gpu.name), device.provenance = "guess";
  device.memory = gpu.memory;
  device.reserve = std::min(device.reserve, gpu.memory - 1);
  node.name = host.name;
  node.device = device.name;
  node.count = 1;
  node.devices = static_cast<int64_t>(host.gpus.size());
  if (node.link_domain > 0 && node.devices % node.link_domain != 0) node.link_domain = 0;
  node.host_memory = host.memory;
  const std::vector<std::string> links =
      take_topology(node, {.topology = host.topology, .gpu = gpu.name, .shipped = shipped});
  const bool has_its_link =
      node.link == like.link && node.link_bandwidth == like.link_bandwidth && node.link_domain == like.link_domain;
  out.notes = {fmt::format("{}: {} x {}, {} each ({})", host.name, host.gpus.size(), gpu.name,
                           format_bytes(static_cast<double>(gpu.memory)), host.gpus_from),
               origin_note(profile, has_its_link ? " and links" : ", but not the link,")};
  // Times over another link, another number of GPUs or another GPU are not this host's.
  if (!profile.is_this() || !has_its_link || node.devices != like.devices) {
    if (!node.collectives.empty() && node.devices > 1)
      out.notes.push_back(
          fmt::format("left out: the collectives of {}, measured over {} GPUs with {} at {:.4g} GB/s; give --comm-json "
                      "for this host's",
                      profile.type.name, like.devices, like.link, like.link_bandwidth * 1e-9));
    node.collectives.clear();
  }
  out.notes.insert(out.notes.end(), links.begin(), links.end());
  if (!host.bus_file.empty()) out.notes.push_back(bus_note(host));
  if (std::any_of(host.gpus.begin(), host.gpus.end(),
                  [&](const GpuFacts& g) { return g.name != gpu.name || g.memory != gpu.memory; }))
    out.notes.push_back(
        "the GPUs differ; the first one speaks for all: write a [device.NAME] and a [[node]] for each kind");
  if (const std::string note = unlisted_note(host); !note.empty()) out.notes.push_back(note);
  if (host.smi_code != 0 && host.gpus_from == "nvidia-smi")
    out.notes.push_back(fmt::format(
        "nvidia-smi ended with code {}: a GPU may be missing in this file; look at what it prints", host.smi_code));
  out.cluster = {.name = host.name, .devices = {device}, .nodes = {node}, .network = profile.like.cluster->network};
  return out;
}

std::vector<std::string> unused_gpus_notes(const HostFacts& host, const std::vector<ClusterSpec>& shipped) {
  const GpuSilence silence =
      gpu_silence({.gpus = host.bus_gpus, .file = host.bus_file, .smi_is_late = host.smi_is_late});
  return {
      fmt::format("not in this file: {} NVIDIA GPUs, {}. nvidia-smi does not tell of them: {}{}",
                  host.bus_file.empty() ? "this host's" : "the PCI bus's", bus_gpus_text(host.bus_gpus), silence.why,
                  host.why_no_cuda.empty() ? "" : "; CUDA: " + host.why_no_cuda),
      fmt::format("of them the PCI bus tells (hwloc): {}. Not known: their memory and NVLinks",
                  gpu_topology_text(host.topology)),
      fmt::format("to plan for them: {}; then run dplan discover again. Or give dplan --cluster a shipped profile that "
                  "is like them ({})",
                  silence.remedy, shipped_like(host.bus_gpus, shipped))};
}

}  // namespace rw
