// What every communicator must do, checked from inside a rank: by the unit tests with threads, by the end-to-end test
// with processes. A failed check throws.
#pragma once
#include "libcore/comm/comm.h"

namespace rw::checks {

struct Topology {
  int ranks_per_node = 0;  // as run_thread_ranks and make_world_comm make them; 0: one node
};

void values_and_texts(Comm& comm);
void places(Comm& comm, const Topology& topology);
void all_reduce_exact(Comm& comm);                            // integers in floats, all types, operations and sizes
void all_reduce_order(Comm& comm, const Topology& topology);  // bit-equal to the documented order of additions
void all_reduce_nan(Comm& comm);
void sums_of_16_bits(Comm& comm, const Topology& topology);
void reduce_scatter_exact(Comm& comm);
void reduce_scatter_bits(Comm& comm);  // equal to all_reduce's
void all_gather_exact(Comm& comm);
void all_gather_cuts(Comm& comm);
void broadcast_exact(Comm& comm);
void messages(Comm& comm);
void messages_in_flight(Comm& comm);
void swaps(Comm& comm);
void messages_to_oneself(Comm& comm);
void many_in_flight(Comm& comm);  // random delays, waited for in other orders
void kinds_in_flight(Comm& comm);
void groups(Comm& comm);          // split, and groups within groups
void shuffled_group(Comm& comm);  // even ranks first: the ranks of a node do not follow each other
void all(Comm& comm, const Topology& topology);

}  // namespace rw::checks
