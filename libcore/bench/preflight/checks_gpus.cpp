#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "libcore/base/units.h"
#include "libcore/bench/preflight/judge.h"
#include "libcore/plan/measure/silent_gpus.h"

namespace rw {
namespace {

constexpr const char* kLayer = "resources";
constexpr double kHotGpu = 85;

std::string size_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

CheckResult check_gpus(const JobFacts& job) {
  Judgement j("resources.gpus", kLayer, "the same GPUs on every host");
  const auto inventory = [](const RankFacts& f) {
    std::map<std::string, int> counts;
    for (const GpuState& g : f.gpus) ++counts[g.name + " " + size_text(g.memory)];
    std::string text;
    for (const auto& [name, n] : counts) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", n, name);
    return text.empty() ? std::string("none") : text;
  };
  expect_agreement(j, job, {"GPUs", CheckStatus::fail, inventory});
  return j.done(inventory(job.ranks.at(0)), "leave that host out, or look at nvidia-smi and the kernel log there");
}

// A rank takes a GPU of its own: dtrain --device cuda refuses more ranks than GPUs. Ranks of a host may be shown
// different GPUs (a batch system's doing), which are counted together where they have addresses.
CheckResult check_gpu_ranks(const JobFacts& job) {
  Judgement j("resources.gpu_ranks", kLayer, "a GPU for each rank of a host, for runs with --device cuda");
  size_t with = 0;
  for (const std::string& host : host_names(job)) {
    std::set<std::string> ids;
    size_t most = 0;
    for (const RankFacts& f : job.ranks) {
      if (f.host != host) continue;
      most = std::max(most, f.gpus.size());
      for (const GpuState& g : f.gpus)
        if (!g.bus_id.empty()) ids.insert(g.bus_id);
    }
    const size_t gpus = std::max(most, ids.size());
    if (gpus == 0) continue;
    std::vector<int64_t> without;
    std::string text;
    size_t local = 0;
    for (const RankFacts& f : job.ranks) {
      if (f.host != host) continue;
      if (local++ < gpus) {
        ++with;
        continue;
      }
      without.push_back(f.rank);
      text += fmt::format("{}{}", text.empty() ? "" : ", ", f.rank);
    }
    if (!without.empty())
      j.find(CheckStatus::warn, without,
             fmt::format("{}: {} GPU{} for {} ranks: none for rank{} {}", host, gpus, gpus == 1 ? "" : "s", local,
                         without.size() == 1 ? "" : "s", text));
  }
  return j.done(with == 0 ? "no GPUs" : fmt::format("a GPU for each of {} rank{}", with, with == 1 ? "" : "s"),
                "start at most as many ranks on a host as it has GPUs (mpirun --host a:8,b:8), or train with --device "
                "cpu");
}

// The GPUs of the PCI bus that nvidia-smi does not list. Where it lists some, not those that NVIDIA's driver has (a
// container shows the bus of the whole host) or that are kept for virtual machines, nor those of a file, which does not
// tell of drivers.
std::vector<BusGpu> silent_gpus(const RankFacts& f) {
  if (!f.bus_file.empty() && !f.gpus.empty()) return {};
  std::vector<std::string> listed;
  for (const GpuState& gpu : f.gpus) listed.push_back(gpu.bus_id);
  std::vector<BusGpu> silent = unlisted_gpus(f.bus_gpus, listed);
  if (!listed.empty())
    std::erase_if(silent, [](const BusGpu& gpu) { return gpu.driver == "nvidia" || gpu.driver == "vfio-pci"; });
  return silent;
}

// A GPU without a driver is one that the job does without, and nothing else says so.
CheckResult check_gpu_driver(const JobFacts& job) {
  Judgement j("resources.gpu_driver", kLayer, "every NVIDIA GPU of the PCI bus answers nvidia-smi");
  size_t n = 0;
  SilentGpus all;
  std::string from;
  for (const RankFacts* f : first_of_hosts(job)) {
    n += f->bus_gpus.size();
    if (!f->bus_file.empty()) from = " of the PCI bus in the file " + f->bus_file + " (HWLOC_XMLFILE)";
    if (f->smi_is_late) {
      j.find(CheckStatus::fail, {f->rank},
             fmt::format("{}: {}", f->host, gpu_silence({.gpus = {}, .file = {}, .smi_is_late = true}).why));
      all.smi_is_late = true;
      continue;
    }
    const std::vector<BusGpu> silent = silent_gpus(*f);
    if (silent.empty()) continue;
    j.find(CheckStatus::warn, {f->rank},
           fmt::format("{}: {}: {}", f->host, bus_gpus_text(silent),
                       gpu_silence({.gpus = silent, .file = f->bus_file}).why));
    all.gpus.insert(all.gpus.end(), silent.begin(), silent.end());
    if (!f->bus_file.empty()) all.file = f->bus_file;
  }
  return j.done(n == 0 ? "none on the bus" : fmt::format("{} GPUs{}", n, from), gpu_silence(all).remedy);
}

CheckResult check_gpu_state(const JobFacts& job) {
  Judgement j("resources.gpu_state", kLayer,
              fmt::format("no uncorrected memory errors, the same clocks, below {:.0f} C", kHotGpu));
  const auto clocks = [](const RankFacts& f) {
    std::set<std::string> all;
    for (const GpuState& g : f.gpus)
      if (!std::isnan(g.clock_mhz)) all.insert(fmt::format("{:.0f}", g.clock_mhz));
    std::string text;
    for (const std::string& c : all) text += (text.empty() ? "" : ", ") + c;
    return text.empty() ? text : text + " MHz";
  };
  expect_agreement(j, job, {"GPU clocks", CheckStatus::warn, clocks});
  size_t n = 0;
  for (const RankFacts* f : first_of_hosts(job))
    for (const GpuState& g : f->gpus) {
      const size_t i = static_cast<size_t>(&g - f->gpus.data());
      ++n;
      if (g.ecc_errors > 0)
        j.find(CheckStatus::fail, {f->rank},
               fmt::format("{}: GPU {} has {:.0f} uncorrected memory errors", f->host, i, g.ecc_errors));
      if (g.temperature >= kHotGpu)
        j.find(CheckStatus::warn, {f->rank}, fmt::format("{}: GPU {} is at {:.0f} C", f->host, i, g.temperature));
    }
  return j.done(n == 0 ? "none" : fmt::format("{} GPUs", n),
                "reset or replace the GPU (nvidia-smi -q), raise its clocks, look after its cooling");
}

// A GPU that lacks the links of its neighbours holds up every collective.
CheckResult check_gpu_links(const JobFacts& job) {
  Judgement j("resources.gpu_links", kLayer, "GPUs that are linked alike, on every host");
  expect_agreement(j, job,
                   {"links", CheckStatus::warn, [](const RankFacts& f) { return gpu_topology_text(f.topology); }});
  for (const RankFacts* f : first_of_hosts(job)) {
    const auto groups = nvlink_groups(f->topology);
    const auto [least, most] = std::minmax_element(groups.begin(), groups.end(),
                                                   [](const auto& a, const auto& b) { return a.size() < b.size(); });
    if (least != most && least->size() != most->size())
      j.find(CheckStatus::warn, {f->rank},
             fmt::format("{}: GPU {} has NVLink to {}, GPU {} to {}", f->host, least->front(),
                         least->size() == 1
                             ? "no other GPU"
                             : fmt::format("{} other GPU{}", least->size() - 1, least->size() == 2 ? "" : "s"),
                         most->front(), most->size() - 1));
  }
  const std::string first = gpu_topology_text(job.ranks.at(0).topology);
  return j.done(
      first.empty() ? "not told" : first,
      "nvidia-smi nvlink --status on that host: a link that is down needs a reset of the GPU, or a technician");
}

// How to start ranks beside their GPUs. --map-by numa would deal them to the NUMA nodes in turn: rank 1 to node 1.
std::string binding_remedy(const JobFacts& job) {
  std::map<int64_t, int64_t> gpus;  // of a NUMA node of the first host
  for (const GpuNeighbours& g : job.ranks.at(0).topology.gpus) ++gpus[g.numa_node];
  const bool is_even = std::all_of(gpus.begin(), gpus.end(), [&](const auto& node) {
    return node.first >= 0 && node.second == gpus.begin()->second;
  });
  const std::string n = is_even && !gpus.empty() ? fmt::format("{}", gpus.begin()->second) : "N";
  return fmt::format(
      "bind each rank near its GPU: mpirun --map-by ppr:{}:numa --bind-to numa ({}: the GPUs of a NUMA node; ranks go "
      "to "
      "nodes in the order of the GPUs), or a rankfile where GPUs or nodes are in another order (dplan place)",
      n, n);
}

// Rank i of a host has GPU i; those that there is none for have nothing to be near to. A rank that sees one GPU has
// that.
CheckResult check_gpu_cores(const JobFacts& job) {
  Judgement j("resources.gpu_cores", kLayer, "ranks on cores near their GPU");
  int64_t n = 0;
  for (const std::string& host : host_names(job)) {
    size_t local = 0;
    for (const RankFacts& f : job.ranks) {
      if (f.host != host) continue;
      const size_t gpu = f.topology.gpus.size() == 1 ? 0 : local++;
      if (gpu >= f.topology.gpus.size() || f.cores.empty()) continue;
      const std::vector<int64_t>& near = f.topology.gpus[gpu].cores;
      if (near.empty()) continue;
      ++n;
      if (std::none_of(f.cores.begin(), f.cores.end(),
                       [&](int64_t c) { return std::find(near.begin(), near.end(), c) != near.end(); }))
        j.find(CheckStatus::warn, {f.rank},
               fmt::format("{} runs on cores from {} on, GPU {} is near those from {} on", rank_name(f),
                           f.cores.front(), gpu, near.front()));
    }
  }
  return j.done(n == 0   ? "which cores are near a GPU is not told"
                : n == 1 ? "1 rank runs near its GPU"
                         : fmt::format("{} ranks run near their GPUs", n),
                binding_remedy(job));
}

}  // namespace

std::vector<CheckResult> gpu_checks(const JobFacts& job) {
  return {check_gpus(job),      check_gpu_ranks(job), check_gpu_driver(job),
          check_gpu_state(job), check_gpu_links(job), check_gpu_cores(job)};
}

}  // namespace rw
