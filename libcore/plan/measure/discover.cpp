#include "libcore/plan/measure/discover.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/units.h"
#include "libcore/plan/measure/cpu_training_ops.h"
#include "libcore/plan/measure/link_fit.h"
#include "libcore/plan/measure/silent_gpus.h"

namespace rw {
namespace {

constexpr double kGuessedLatency = 2e-6;  // a cache line there and back, and waking up

std::vector<std::string> words(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)))
      out.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!out.back().empty()) out.emplace_back();
  }
  if (out.back().empty()) out.pop_back();
  return out;
}

// Whether words that follow each other in `name` make up `model`: {nvidia, geforce, rtx, 4090} has rtx4090.
bool has_model(const std::vector<std::string>& name, const std::string& model) {
  for (size_t first = 0; first < name.size(); ++first) {
    std::string joined;
    for (size_t i = first; i < name.size() && joined.size() < model.size(); ++i) joined += name[i];
    if (joined == model) return true;
  }
  return false;
}

bool has_word(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// Letters, digits and dashes, as a device's name must be.
std::string device_name(const std::string& text) {
  std::string out;
  for (const std::string& word : words(text)) out += (out.empty() ? "" : "-") + word;
  return out.empty() ? "device" : out;
}

struct Shipped {
  const ClusterSpec* cluster = nullptr;
  const NodeType* node = nullptr;
};
Shipped node_with(const std::string& device, const std::vector<ClusterSpec>& shipped) {
  for (const ClusterSpec& cluster : shipped)
    for (const NodeType& node : cluster.nodes)
      if (node.device == device) return {&cluster, &node};
  return {};
}

std::vector<ClusterSpec> shipped_clusters() {
  std::vector<ClusterSpec> all;
  for (const std::string& name : cluster_names()) all.push_back(load_cluster_spec(name));
  // Clusters of one node type first: their links were chosen for it alone.
  std::stable_sort(all.begin(), all.end(),
                   [](const ClusterSpec& a, const ClusterSpec& b) { return a.nodes.size() < b.nodes.size(); });
  return all;
}

// The kind of link, its domain and the NICs as nvidia-smi and the PCI bus tell them, where they do; what was taken, in
// words. The profile's bandwidth of NVLink is not this host's where its GPUs have none.
std::string take_topology(NodeType& node, const GpuTopology& topology) {
  if (topology.gpus.empty()) return {};
  std::string text = gpu_topology_text(topology) + (topology.knows_nvlink ? " (nvidia-smi topo -m)" : " (hwloc)");
  if (!topology.nics.empty()) node.nics = static_cast<int64_t>(topology.nics.size());
  const std::vector<std::vector<int64_t>> groups = nvlink_groups(topology);
  const size_t group = groups.front().size();
  const bool is_even = std::all_of(groups.begin(), groups.end(), [&](const auto& g) { return g.size() == group; });
  if (topology.gpus.size() == 1) return text;
  if (!topology.knows_nvlink) return text + "; the link is still the profile's";
  if (group == 1 || !is_even) {
    if (node.link.starts_with("nv") && node.pcie_bandwidth > 0) node.link_bandwidth = node.pcie_bandwidth;
    node.link = "pcie", node.link_domain = 0;
    if (!is_even) text += "; NVLink joins groups of different sizes: the slowest link speaks for all";
    return text;
  }
  if (!node.link.starts_with("nv")) {
    node.link = "nvlink";
    text += "; link-bandwidth is still the profile's, of PCIe: give --comm-json";
  }
  node.link_domain = groups.size() == 1 ? 0 : static_cast<int64_t>(group);
  return text;
}

CollectiveFit* same_fit(std::vector<CollectiveFit>& fits, const CollectiveFit& fit) {
  for (CollectiveFit& f : fits)
    if (f.kind == fit.kind && f.ranks == fit.ranks) return &f;
  return nullptr;
}

// Of a kind and number of ranks the later one stays.
void take(std::vector<CollectiveFit>& fits, const CollectiveFit& fit) {
  if (CollectiveFit* before = same_fit(fits, fit)) *before = fit;
  else fits.push_back(fit);
}

}  // namespace

FieldList fields(DiscoverSpec& s) {
  return {
      {.name = "ranks-per-node",
       .value = &s.ranks_per_node,
       .help = "ranks that will run on this machine; 0: one a NUMA node, at least two",
       .min = 0,
       .max = 4096},
      {.name = "threads", .value = &s.threads, .help = "of each; 0: the cores a rank has", .min = 0, .max = 4096},
      {.name = "seconds", .value = &s.seconds, .help = "of each measurement", .min = 0, .max = 100},
      {.name = "comm-json",
       .value = &s.comm_json,
       .help = "what dbench comm --json printed; gives the links; may repeat, later files win"},
      {.name = "kernels-json",
       .value = &s.kernels_json,
       .help = "what dbench kernels --json printed; gives the fractions of the peaks"},
  };
}

RankCores deal_cores(const DiscoverSpec& spec, const HostFacts& host) {
  const int64_t by_threads = spec.threads > 0 ? std::max<int64_t>(1, host.cores / spec.threads) : host.cores;
  const int64_t ranks =
      spec.ranks_per_node > 0 ? spec.ranks_per_node : std::min(by_threads, std::max<int64_t>(2, host.numa_nodes));
  const int64_t threads = spec.threads > 0 ? spec.threads : std::max<int64_t>(1, host.cores / ranks);
  if (ranks * threads > host.cores)
    fail(ErrorKind::usage,
         "--ranks-per-node {} with --threads {}: expected no more than the {} cores that this process may use, found "
         "{}; lower one of them, or start without a binding to fewer cores",
         ranks, threads, host.cores, ranks * threads);
  return {.ranks = static_cast<int>(ranks), .threads = static_cast<int>(threads)};
}

const DeviceType* match_gpu(const GpuFacts& gpu, const std::vector<DeviceType>& known) {
  const std::vector<std::string> name = words(gpu.name);
  const DeviceType* best = nullptr;
  double least = 0;
  for (const DeviceType& type : known) {
    const std::vector<std::string> parts = words(type.name);
    if (parts.empty() || !has_model(name, parts[0])) continue;
    const double away = std::abs(std::log2(static_cast<double>(gpu.memory) / static_cast<double>(type.memory))) +
                        (has_word(name, "pcie") != has_word(parts, "pcie") ? 0.1 : 0);
    if (best == nullptr || away < least) best = &type, least = away;
  }
  return best;
}

Discovered cpu_cluster(const CpuFindings& found) {
  const HostFacts& host = found.host;
  const CpuSpeed& speed = found.speed;
  const RankCores& cores = found.cores;
  Discovered out;
  DeviceType device{.name = "cpu",
                    .memory = host.memory / cores.ranks,
                    .peak_f32 = four_digits(speed.peak_f32),
                    .peak_bf16 = four_digits(speed.peak_bf16),
                    .peak_f16 = four_digits(speed.peak_f16),
                    .memory_bandwidth = four_digits(speed.bytes_per_s),
                    .reserve = std::min(host.memory_taken, host.memory - 1) / cores.ranks,
                    .launch = four_digits(speed.launch_s),
                    .provenance = "guess"};
  if (speed.small_products > 0 && speed.attention > 0) {
    const SizeLaw law = size_law(kSmallProduct, speed.small_products, kLargeProduct, speed.large_products);
    device.gemm_fraction = four_digits(std::min(1.0, law.large / speed.peak_bf16));
    device.gemm_half_size = four_digits(law.half);
    device.attention_fraction = four_digits(std::min(1.0, speed.attention / speed.peak_bf16));
  }
  NodeType node{.name = host.name,
                .device = device.name,
                .count = 1,
                .devices = cores.ranks,
                .link = "shared-memory",
                .link_bandwidth = four_digits(speed.bytes_per_s / 2),
                .link_latency = kGuessedLatency,
                .host_memory = host.memory};
  out.is_quiet = speed.cpu_share >= kQuietCpuShare;
  out.notes = {
      fmt::format("{}: {}, {} cores, {} NUMA nodes, {}; {} ranks of {} threads", host.name, host.cpu_model, host.cores,
                  host.numa_nodes, format_bytes(static_cast<double>(host.memory)), cores.ranks, cores.threads),
      fmt::format("measured, all ranks at once, the slowest rank's: peaks (f32 {}, bf16 {}), memory-bandwidth (a copy, "
                  "read and written), launch",
                  speed.instruction_f32, speed.instruction_bf16),
      "measured likewise, in bf16: gemm-fraction, gemm-half-size, attention-fraction (training's products of 256 and "
      "1,024 "
      "columns, its attention)",
      "memory and reserve: this host's and what of it was taken, in equal parts; memory-fraction and overlap are "
      "guesses: "
      "dplan calibrate fits them to a run"};
  if (cores.ranks > 1)
    out.notes.push_back("link-bandwidth (half of the copy's) and link-latency are guesses: give --comm-json");
  if (!out.is_quiet)
    out.notes.push_back(fmt::format(
        "not quiet: the threads ran {:.0f} % of the time, so others were on the machine and it does better than this",
        100 * speed.cpu_share));
  out.cluster = {.name = host.name, .devices = {device}, .nodes = {node}};
  return out;
}

Discovered gpu_cluster(const HostFacts& host, const std::vector<ClusterSpec>& shipped) {
  const GpuFacts& gpu = host.gpus.front();
  std::vector<DeviceType> known;
  for (const ClusterSpec& cluster : shipped)
    for (const DeviceType& type : cluster.devices)
      if (type.compute_units > 1) known.push_back(type);
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
  const Shipped like = node_with(type->name, shipped);
  Discovered out;
  DeviceType device = *type;
  NodeType node = *like.node;
  if (!is_known) device.name = device_name(gpu.name), device.provenance = "guess";
  device.memory = gpu.memory;
  device.reserve = std::min(device.reserve, gpu.memory - 1);
  node.name = host.name;
  node.device = device.name;
  node.count = 1;
  node.devices = static_cast<int64_t>(host.gpus.size());
  if (node.link_domain > 0 && node.devices % node.link_domain != 0) node.link_domain = 0;
  node.host_memory = host.memory;
  const std::string links = take_topology(node, host.topology);
  std::erase_if(node.collectives, [&](const CollectiveFit& f) { return !is_known || f.ranks != node.devices; });
  out.notes = {
      fmt::format("{}: {} x {}, {} each ({})", host.name, host.gpus.size(), gpu.name,
                  format_bytes(static_cast<double>(gpu.memory)), host.gpus_from),
      is_known
          ? fmt::format("peaks, bandwidths, price and links are those of {} in {}", type->name, like.cluster->where)
          : fmt::format("no shipped profile knows this GPU: all but memory and count are those of {}, the "
                        "nearest in memory, and guesses: put in the data sheet's",
                        type->name)};
  if (!links.empty()) out.notes.push_back(links);
  if (std::any_of(host.gpus.begin(), host.gpus.end(),
                  [&](const GpuFacts& g) { return g.name != gpu.name || g.memory != gpu.memory; }))
    out.notes.push_back(
        "the GPUs differ; the first one speaks for all: write a [device.NAME] and a [[node]] for each kind");
  out.cluster = {.name = host.name, .devices = {device}, .nodes = {node}, .network = like.cluster->network};
  return out;
}

std::vector<std::string> unused_gpus_notes(const HostFacts& host) {
  const GpuSilence silence = gpu_silence(host.bus_gpus);
  return {
      fmt::format("not in this file: this host's NVIDIA GPUs, {}. nvidia-smi does not tell of them: {}{}",
                  bus_gpus_text(host.bus_gpus), silence.why,
                  host.why_no_cuda.empty() ? "" : "; CUDA: " + host.why_no_cuda),
      fmt::format("of them the PCI bus tells (hwloc): {}. Not known: their memory and NVLinks",
                  gpu_topology_text(host.topology)),
      fmt::format("to plan for them: {}; then run dplan discover again. Or give dplan a shipped profile that is like "
                  "them (--cluster h100-sxm)",
                  silence.remedy)};
}

void take_links(Discovered& found, const LinkFits& fits) {
  NodeType& node = found.cluster.nodes.front();
  for (const CollectiveFit& fit : fits.node) {
    if (fit.ranks > node.devices)
      fail(ErrorKind::usage,
           "--comm-json: {} was measured over {} ranks of a node, and the node has {} devices; give "
           "--ranks-per-node {}",
           fit.kind, fit.ranks, node.devices, fit.ranks);
    take(node.collectives, fit);
  }
  for (const CollectiveFit& fit : fits.network) take(found.cluster.network.collectives, fit);
  if (const CollectiveFit* fit = plainest(fits.node)) {
    const LinkSpeed link = link_below(*fit);
    node.link_bandwidth = link.bandwidth, node.link_latency = std::min(link.latency, 1.0);
  }
  if (const CollectiveFit* fit = plainest(fits.network)) {
    const LinkSpeed link = link_below(*fit);
    node.nics = 1, node.nic_bandwidth = link.bandwidth, node.nic_latency = std::min(link.latency, 1.0);
    node.count = std::max(node.count, fits.nodes);
  }
  if (!fits.node.empty())
    std::erase_if(found.notes, [](const std::string& note) { return note.starts_with("link-bandwidth"); });
  found.notes.insert(found.notes.end(), fits.notes.begin(), fits.notes.end());
}

void take_fractions(Discovered& found, const KernelFractions& fractions) {
  DeviceType& device = found.cluster.devices.front();
  if (!fractions.backend.empty() && fractions.backend.starts_with("cpu") != device.is_cpu())
    fail(ErrorKind::input, "--kernels-json: expected what dbench kernels measured on {}, found a record of {}",
         device.is_cpu() ? "this host's CPUs" : device.name, fractions.backend);
  if (fractions.gemm > 0) device.gemm_fraction = four_digits(fractions.gemm);
  if (fractions.attention > 0) device.attention_fraction = four_digits(fractions.attention);
  if (fractions.memory > 0) device.memory_fraction = four_digits(fractions.memory);
  if (fractions.gemm > 0 && fractions.memory > 0) device.provenance = "measured";
  found.notes.push_back(
      fmt::format("fractions from dbench kernels: products {:.3f}, attention {:.3f}, the rest {:.3f} "
                  "(0: it tells nothing)",
                  fractions.gemm, fractions.attention, fractions.memory));
  found.notes.insert(found.notes.end(), fractions.notes.begin(), fractions.notes.end());
}

std::string discovered_toml(const Discovered& found) {
  std::string out = "# Written by dplan discover.\n";
  for (const std::string& note : found.notes) {
    std::istringstream lines(note);
    for (std::string line; std::getline(lines, line);) out += "# " + line + "\n";
  }
  return out + "\n" + cluster_toml(found.cluster);
}

Discovered discover(const DiscoverSpec& spec) {
  HostFacts host = this_host();
  find_gpus(host);
  Discovered found;
  if (host.gpus.empty()) {
    const RankCores cores = deal_cores(spec, host);
    // An eighth of what is free for the copies of all ranks, at most 256 MiB and two of them a rank.
    const int64_t free = (host.memory - host.memory_taken) / 16 / cores.ranks;
    const CpuSpeedJob job{.ranks = cores.ranks,
                          .threads = cores.threads,
                          .seconds = spec.seconds,
                          .copy_bytes = std::clamp<int64_t>(free, 16 << 20, 256 << 20)};
    found = cpu_cluster({.host = host, .cores = cores, .speed = measure_cpu_speed(job)});
    found.has_unused_gpus = !host.bus_gpus.empty();
    if (found.has_unused_gpus) {
      const std::vector<std::string> notes = unused_gpus_notes(host);
      found.notes.insert(found.notes.begin(), notes.begin(), notes.end());
    }
  } else {
    found = gpu_cluster(host, shipped_clusters());
  }
  for (const std::string& file : spec.comm_json) take_links(found, fit_comm_results(read_file(file), file));
  if (!spec.kernels_json.empty())
    take_fractions(found, read_kernel_results(read_file(spec.kernels_json), spec.kernels_json));
  return found;
}

}  // namespace rw
