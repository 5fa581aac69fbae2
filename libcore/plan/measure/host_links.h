// The link between a host's GPUs: that of a shipped profile, corrected by what the host tells.
#pragma once
#include <string>
#include <vector>

#include "libcore/plan/measure/gpu_topology.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

struct LinkEvidence {
  const GpuTopology& topology;
  std::string gpu;                          // its name
  const std::vector<ClusterSpec>& shipped;  // that know other links' latency
};
// Into `node`, which has the profile's link and this host's devices: the kind of link, its domain, bandwidth (of the
// NVLinks that are seen) and latency, and the network cards; what the host does not tell stays. Returns what was taken,
// from where, and what is not this host's.
std::vector<std::string> take_topology(NodeType& node, const LinkEvidence& seen);

}  // namespace rw
