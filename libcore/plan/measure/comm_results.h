// What `dbench comm --json` measured, as fits of a cluster's links.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/spec/cluster_spec.h"

namespace rw {

struct LinkFits {
  std::vector<CollectiveFit> node, network;  // among the ranks of one node; among one rank of each of several nodes
  int64_t nodes = 1;                         // the most that a line names
  std::vector<std::string> notes;            // for people: each fit's error, and lines that tell nothing
};

// `text`: records of dbench comm (one, or a line each), or the timings of their details.rows, a line each. Of each
// operation, number of ranks and nodes the timings of the way that jobs take by themselves: "auto"; where several ways
// were tried and not that one (--tune), at each size the fastest, which the new table picks; never the MPI library's
// own calls. In memory that ranks share, all_reduce in place and the others not, where there are such. A fit is a
// "guess", and its note says why, where one way alone was measured that jobs may not take, where the record says that
// the machine was not quiet, where there is one size, or where the lines miss the times by more than 15 % on average or
// 100 % at most; else "measured". Error{input} names `where` and the line for what is no such thing, or for a result
// that was wrong.
LinkFits fit_comm_results(const std::string& text, const std::string& where);

// Latency and bandwidth of the link below a fit: those of a message, or of the ring that a collective of r ranks goes
// around (all_reduce 2 (r - 1) rounds and 2 (r - 1) / r of the bytes on each wire; all_gather and reduce_scatter half).
struct LinkSpeed {
  double latency = 0, bandwidth = 0;
};
LinkSpeed link_below(const CollectiveFit& fit);
// Of several fits the one that tells most: of those that are no guesses, if any, a message, else the collective of
// fewest rounds. Null for none.
const CollectiveFit* plainest(const std::vector<CollectiveFit>& fits);

}  // namespace rw
