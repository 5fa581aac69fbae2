// What a server's devices pay for talking to each other and to other servers.
#pragma once
#include <cstdint>
#include <functional>

#include "libcore/comm/watch.h"
#include "libcore/spec/cluster_spec.h"

namespace rw {

// Seconds of a collective over the tensor-parallel group.
using CollectiveSeconds = std::function<double(CommKind kind, double bytes)>;

struct TensorParallelLinks {
  CollectiveSeconds seconds;
  Provenance provenance;  // of the weakest number in it, the device's own included
};
// Of tp neighbouring devices of a cluster of one node type, while all other groups of tp do the same.
TensorParallelLinks tensor_parallel_links(const ClusterSpec& cluster, int64_t tp);

// Bytes/s at which a server of sender_tp devices hands keys and values to one of receiver_tp: over the NICs, each
// device with its share of its node's; within the node's links where it has no NIC.
double handoff_bandwidth(const ClusterSpec& cluster, int64_t sender_tp, int64_t receiver_tp);

}  // namespace rw
