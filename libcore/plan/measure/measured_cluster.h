// This host as the ranks of a job share it: a cluster to plan and predict with where no file describes one.
#pragma once
#include "libcore/comm/comm.h"
#include "libcore/plan/measure/discover.h"

namespace rw {

// Each rank measures its own cores while all do; the slowest counts. About a second. Collective. Error{usage} over
// several hosts: the network between them is not measured here.
Discovered measured_cluster(int threads, Comm& world);

}  // namespace rw
