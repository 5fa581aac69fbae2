// Copies of the files of a local save on other nodes: each rank's file goes to its buddy, a rank of the next node, and
// is checked there. Losing one node then loses nothing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/comm/comm.h"

namespace rw {

// (ranks) the rank that keeps a copy of each rank's file, by the node of each rank; -1 for all when there is one node.
std::vector<int> buddies(const std::vector<int>& nodes);

class BuddyCopy {
 public:
  // `dir` holds this rank's file and gets the files of the ranks whose buddy it is; `shards` are all ranks'. Makes
  // room: Error{runtime} when there is none.
  BuddyCopy(const std::filesystem::path& dir, const std::vector<ShardRecord>& shards, const std::vector<int>& buddies,
            Comm& comm);
  ~BuddyCopy();
  // When all ranks have made theirs.
  void start();
  // Moves on, does not wait. True when this rank's file is sent and what it received is on disk and compared with its
  // digests. Error{runtime} when that failed.
  bool done();
  // Error{runtime} when nothing has moved for the communicator's timeout: a peer is gone, and since the messages still
  // hold their memory the job has to end.
  void fail_if_stuck();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace rw
