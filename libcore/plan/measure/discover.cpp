#include "libcore/plan/measure/discover.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/units.h"
#include "libcore/plan/measure/cpu_training_ops.h"
#include "libcore/plan/measure/gpu_profile.h"
#include "libcore/plan/measure/link_fit.h"
#include "libcore/plan/measure/silent_gpus.h"

namespace rw {
namespace {

constexpr double kGuessedLatency = 2e-6;  // a cache line there and back, and waking up

std::vector<ClusterSpec> shipped_clusters() {
  std::vector<ClusterSpec> all;
  for (const std::string& name : cluster_names()) all.push_back(load_cluster_spec(name));
  // Clusters of one node type first: their links were chosen for it alone.
  std::stable_sort(all.begin(), all.end(),
                   [](const ClusterSpec& a, const ClusterSpec& b) { return a.nodes.size() < b.nodes.size(); });
  return all;
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

// "NVIDIA H200" of "cuda:0 (NVIDIA H200)"; "" where no GPU is named.
std::string backend_gpu(const std::string& backend) {
  const size_t open = backend.find('('), close = backend.rfind(')');
  return open == std::string::npos || close == std::string::npos || close < open
             ? ""
             : backend.substr(open + 1, close - open - 1);
}

// Another device's fractions would be taken for measured ones.
void check_backend(const Discovered& found, const KernelFractions& fractions) {
  const bool is_cpu = found.cluster.devices.front().is_cpu();
  const std::string& backend = fractions.backend;
  const std::string gpu = backend_gpu(backend);
  const bool is_simulated = gpu.find("simulated") != std::string::npos;
  if (is_cpu ? backend.empty() || backend.starts_with("cpu") : !is_simulated && is_same_gpu(gpu, found.gpu)) return;
  fail(ErrorKind::input,
       "{}: expected what dbench kernels measured on {}, found a record of {}{}; measure here (dbench kernels{} "
       "--json), "
       "or leave --kernels-json out",
       fractions.where, is_cpu ? "this host's CPUs" : found.gpu, backend.empty() ? "a device without a name" : backend,
       is_simulated ? ", whose times say nothing of a GPU" : "", is_cpu ? "" : " --device cuda");
}

// What a host with GPUs is not asked, though it was given.
std::string unused_flags_note(const DiscoverSpec& spec) {
  std::string flags;
  const auto add = [&](const char* flag) { flags += (flags.empty() ? "" : ", ") + std::string(flag); };
  if (spec.ranks_per_node != DiscoverSpec{}.ranks_per_node) add("--ranks-per-node");
  if (spec.threads != DiscoverSpec{}.threads) add("--threads");
  if (spec.seconds != DiscoverSpec{}.seconds) add("--seconds");
  return flags.empty() ? flags : flags + ": not used, they are of hosts without GPUs; here a rank has a GPU";
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

void take_links(Discovered& found, const LinkFits& fits) {
  NodeType& node = found.cluster.nodes.front();
  for (const CollectiveFit& fit : fits.node) {
    if (fit.ranks > node.devices)
      fail(ErrorKind::usage, "--comm-json: {} was measured over {} ranks of a node, and the node has {} devices; {}",
           fit.kind, fit.ranks, node.devices,
           found.gpu.empty() ? fmt::format("give --ranks-per-node {}", fit.ranks)
                             : fmt::format("measure it with at most {} ranks on this host", node.devices));
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
  check_backend(found, fractions);
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
    if (!host.bus_gpus.empty()) {
      found.unused_gpus_of = host.bus_file.empty() ? "this host" : "the file " + host.bus_file + " (HWLOC_XMLFILE)";
      const std::vector<std::string> notes = unused_gpus_notes(host, shipped_clusters());
      found.notes.insert(found.notes.begin(), notes.begin(), notes.end());
    } else if (host.smi_is_late) {
      const GpuSilence silence = gpu_silence({.gpus = {}, .file = {}, .smi_is_late = true});
      found.notes.insert(found.notes.begin(), fmt::format("GPUs, if there are any, are not in this file: {}; {}",
                                                          silence.why, silence.remedy));
    }
  } else {
    found = gpu_cluster(host, shipped_clusters());
    if (const std::string note = unused_flags_note(spec); !note.empty()) found.notes.push_back(note);
  }
  for (const std::string& file : spec.comm_json) take_links(found, fit_comm_results(read_file(file), file));
  if (!spec.kernels_json.empty())
    take_fractions(found, read_kernel_results(read_file(spec.kernels_json), spec.kernels_json));
  return found;
}

}  // namespace rw
