// What every communicator must do, checked from inside a rank: by the unit tests with threads, by the end-to-end test
// with processes. A failed check throws.
#pragma once
#include "libcore/comm/comm.h"

namespace rw::checks {

struct Topology {
  int nodes = 1;  // contiguous blocks of ranks, as RANKWRIGHT_PRETEND_NODES makes them
};

void all_reduce_exact(Comm& comm);                            // integers in floats, all types, operations and sizes
void all_reduce_order(Comm& comm, const Topology& topology);  // bit-equal to the documented order of additions
void all_reduce_nan(Comm& comm);
void reduce_scatter_exact(Comm& comm);
void all_gather_exact(Comm& comm);
void broadcast_exact(Comm& comm);
void messages(Comm& comm);
void many_in_flight(Comm& comm);  // random delays, waited for in other orders
void groups(Comm& comm);          // split, and groups within groups
void values_and_texts(Comm& comm);
void all(Comm& comm, const Topology& topology);

}  // namespace rw::checks
