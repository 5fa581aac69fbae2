#include "libcore/plan/measure/host_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "libcore/plan/measure/gpu_profile.h"

namespace rw {
namespace {

bool is_nvlink(const std::string& link) { return link.starts_with("nv"); }

// The latency of a link of the other kind, and in words where it is from.
std::string take_latency(NodeType& node, const std::vector<ClusterSpec>& shipped) {
  for (const ClusterSpec& cluster : shipped)
    for (const NodeType& other : cluster.nodes)
      if (other.link != "shared-memory" && is_nvlink(other.link) == is_nvlink(node.link)) {
        node.link_latency = other.link_latency;
        return fmt::format("link-latency is that of {}", other.device);
      }
  return fmt::format("link-latency is still the profile's, of {}: this one's is not known",
                     is_nvlink(node.link) ? "PCIe" : "NVLink");
}

std::vector<std::string> take_pcie(NodeType& node, const LinkEvidence& seen, const std::string& why) {
  node.link_domain = 0;
  if (!is_nvlink(node.link)) return {};
  const bool is_known = node.pcie_bandwidth > 0;
  if (is_known) node.link_bandwidth = node.pcie_bandwidth;
  node.link = "pcie";
  return {fmt::format("link-bandwidth is {}, because {}; {}",
                      is_known ? "the profile's pcie-bandwidth" : "still the profile's, of NVLink and too much", why,
                      take_latency(node, seen.shipped))};
}

// The NVLinks of a GPU into its group. More than it has: each of its ways goes through a switch and names them all.
int64_t links_of(const GpuNeighbours& gpu, const std::vector<int64_t>& group, int64_t count) {
  int64_t sum = 0, least = count;
  for (const int64_t to : group) {
    const int64_t n = nvlinks(gpu.gpus[static_cast<size_t>(to)]);
    sum += n;
    if (n > 0) least = std::min(least, n);
  }
  return sum > count ? least : sum;
}

std::vector<std::string> take_nvlink(NodeType& node, const LinkEvidence& seen,
                                     const std::vector<std::vector<int64_t>>& groups) {
  const NodeType profile = node;
  node.link_domain = groups.size() == 1 ? 0 : static_cast<int64_t>(groups.front().size());
  const bool was_nvlink = is_nvlink(profile.link);
  const std::optional<Nvlinks> whole = nvlinks_of(seen.gpu);
  if (!whole) {
    if (!was_nvlink) node.link = "nvlink";
    const std::string latency = was_nvlink ? std::string() : "; " + take_latency(node, seen.shipped);
    return {
        fmt::format("link-bandwidth is still the profile's, of {}, and not this host's: what an NVLink of this GPU "
                    "carries is not known; give --comm-json{}",
                    profile.link, latency)};
  }
  int64_t links = whole->count;
  bool has_all = true;
  for (const std::vector<int64_t>& group : groups)
    for (const int64_t from : group) {
      const GpuNeighbours& gpu = seen.topology.gpus[static_cast<size_t>(from)];
      links = std::min(links, links_of(gpu, group, whole->count));
      for (const int64_t to : group)
        has_all = has_all && (to == from || nvlinks(gpu.gpus[static_cast<size_t>(to)]) >= whole->count);
    }
  if (!was_nvlink || !has_all) node.link = "nvlink";
  node.link_bandwidth = static_cast<double>(links) * whole->bandwidth;
  if (node.link_bandwidth == profile.link_bandwidth) return {};
  std::string note = fmt::format("link-bandwidth is that of the {} NVLinks that are seen, {:.4g} GB/s each", links,
                                 whole->bandwidth * 1e-9);
  if (links < whole->count) note += fmt::format(" (of {} where all are wired)", whole->count);
  if (!was_nvlink) note += "; " + take_latency(node, seen.shipped);
  return {note};
}

}  // namespace

std::vector<std::string> take_topology(NodeType& node, const LinkEvidence& seen) {
  const GpuTopology& topology = seen.topology;
  const bool is_told = !topology.gpus.empty() && topology.knows_nvlink, has_links = node.devices > 1;
  if (!topology.nics.empty()) node.nics = static_cast<int64_t>(topology.nics.size());
  std::vector<std::string> notes, links;
  std::string text = gpu_topology_text(topology);
  if (!text.empty()) text += topology.knows_nvlink ? " (nvidia-smi topo -m)" : " (hwloc)";
  if (has_links && !is_told) {
    if (is_pcie_card(seen.gpu))
      links = take_pcie(node, seen, "these are PCIe cards and nobody tells of NVLink bridges between them");
    else if (!text.empty()) text += "; the link is still the profile's";
  } else if (has_links) {
    const std::vector<std::vector<int64_t>> groups = nvlink_groups(topology);
    const size_t group = groups.front().size();
    const bool is_even = std::all_of(groups.begin(), groups.end(), [&](const auto& g) { return g.size() == group; });
    if (!is_even)
      links = take_pcie(node, seen, "NVLink joins groups of different sizes and the slowest link speaks for all");
    else if (group == 1) links = take_pcie(node, seen, "no NVLink joins these GPUs");
    else links = take_nvlink(node, seen, groups);
  }
  if (!text.empty()) notes.push_back(text);
  notes.insert(notes.end(), links.begin(), links.end());
  return notes;
}

}  // namespace rw
