// A communicator whose all_reduce takes the way that a policy picks: the step lists of libcore/schedule/collective.h,
// the MPI library's own, or `direct`, the communicator it stands in front of. Everything else is that communicator's.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/comm/board.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/mpi_link.h"
#include "libcore/comm/steps_table.h"

namespace rw {

// The same on all ranks. Whoever holds it may change it between operations, on all ranks alike (dbench comm does).
struct AllReducePolicy {
  std::optional<AllReducePick> forced;  // nothing: auto, by the table
  CommTable table;
};
// "auto" or the name of a way (steps_table.h); a file, or "" for the rules. Error{usage} or Error{input}.
std::shared_ptr<AllReducePolicy> make_all_reduce_policy(const std::string& choice, const std::string& table_file);

struct StepsCommConfig {
  std::unique_ptr<Comm> direct;
  Board* board = nullptr;           // of this rank's node, owned by `direct`; null when it is alone there
  std::shared_ptr<MpiLink> link;    // all ranks, for these messages alone
  std::vector<std::string> labels;  // (ranks)
  NodeMap nodes;                    // ranks that share a board
  std::shared_ptr<const AllReducePolicy> policy;
};
std::unique_ptr<Comm> make_steps_comm(StepsCommConfig config);

}  // namespace rw
