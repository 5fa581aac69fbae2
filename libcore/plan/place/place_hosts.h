// Host files as Open MPI reads them ("h1 slots=8"), and the cluster's nodes under their names.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/plan/place/placement.h"

namespace rw {

struct HostSlots {
  std::string host;
  int64_t slots = -1;  // -1: the file does not say
};
// A host a line, "slots=N" (max_slots is no less, other keys are passed over), # comments; a host that stands there
// again adds its slots, or one. Error{input} names file and line.
std::vector<HostSlots> parse_hostfile(const std::string& text, const std::string& where);

// The cluster's nodes in its order under the hosts' names. Error{usage}: other numbers of hosts than of nodes, a host
// with fewer slots than its node has devices.
std::vector<NodeUse> name_nodes(const ClusterSpec& cluster, const std::vector<HostSlots>& hosts,
                                const std::string& where);
// Marks devices as taken: `slots` of a host, all when the file does not say. Error{usage}: a host that is not one of
// the nodes (with the nearest that is), more slots than devices.
void occupy(std::vector<NodeUse>& nodes, const ClusterSpec& cluster, const std::vector<HostSlots>& taken,
            const std::string& where);

}  // namespace rw
