// `dplan discover`: a cluster file for the machine it runs on.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/plan/measure/comm_results.h"
#include "libcore/plan/measure/cpu_speed.h"
#include "libcore/plan/measure/host_facts.h"
#include "libcore/plan/measure/kernel_results.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

struct DiscoverSpec {
  int64_t ranks_per_node = 0, threads = 0;
  double seconds = 0.3;
  std::vector<std::string> comm_json;
  std::string kernels_json;
};
FieldList fields(DiscoverSpec& spec);

// How the cores are dealt to ranks. Error{usage} for more threads than cores.
struct RankCores {
  int ranks = 1, threads = 1;
};
RankCores deal_cores(const DiscoverSpec& spec, const HostFacts& host);

struct Discovered {
  ClusterSpec cluster;
  std::vector<std::string> notes;  // where the numbers come from, and what to look at
  bool is_quiet = true;
  std::string gpu;             // the name of the devices; "": they are CPUs
  std::string unused_gpus_of;  // who has GPUs that are not in the cluster, "" when nobody; the first notes say why
};

struct CpuFindings {
  HostFacts host;
  RankCores cores;
  CpuSpeed speed;
};
Discovered cpu_cluster(const CpuFindings& found);
// The first GPU speaks for all; its numbers come from the shipped profiles, as do its node's links where the host does
// not tell of them, its memory and count from the host.
Discovered gpu_cluster(const HostFacts& host, const std::vector<ClusterSpec>& shipped);
// What the file of a host's CPUs must say of the GPUs that its PCI bus has and that do not answer.
std::vector<std::string> unused_gpus_notes(const HostFacts& host, const std::vector<ClusterSpec>& shipped);
// Link speeds and [[node.collective]], [[network.collective]] from measured ones.
void take_links(Discovered& found, const LinkFits& fits);
// Error{input} for a record of another device than found.cluster's, or of a simulated one.
void take_fractions(Discovered& found, const KernelFractions& fractions);

// The notes as comments, then the file; reads back as found.cluster.
std::string discovered_toml(const Discovered& found);

// All of it for this host.
Discovered discover(const DiscoverSpec& spec);

}  // namespace rw
