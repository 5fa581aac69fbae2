// The cores of a host, shared among the ranks that run on it.
#pragma once
#include <cstdint>

#include "libcore/comm/comm.h"

namespace rw {

int online_cores();                    // of this host
int ranks_of_host(const Comm& world);  // of this rank's
int rank_on_host(const Comm& world);   // of this rank among them, by their order in the world
// The threads a rank takes: `asked`, or, where that is 0, the cores this host has for it.
int threads_per_rank(int64_t asked, const Comm& world);
// Cores of this host that its ranks, bound to fewer, leave without work with so many threads each.
int idle_cores(int threads, const Comm& world);

}  // namespace rw
