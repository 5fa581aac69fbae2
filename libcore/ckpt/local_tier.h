// Checkpoints in the nodes' own directories. A node holds the files of its ranks and of those whose buddies they are;
// a step counts when the nodes that are left hold every file of its manifest between them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/comm/comm.h"

namespace rw {

struct LocalStep {
  int64_t step = -1;                      // -1: none
  std::vector<std::vector<int>> holders;  // by file of the manifest: the nodes that have it, every byte right
};

// Collective. The newest step after `newer_than` that the nodes hold between them; every byte is compared with its
// digest, a damaged file counts as missing. Each node then has a directory of that step with the manifest, perhaps
// without all files it needs. `notes` get what was passed over and why, the same on all ranks.
LocalStep find_local_step(const std::filesystem::path& local, int64_t newer_than, Comm& comm,
                          std::vector<std::string>& notes);

// The files of the manifest that hold a part of these boxes, by (tensor, box).
std::vector<int64_t> files_of(const Manifest& manifest, const std::vector<std::pair<std::string, Box>>& boxes);

// Collective. Brings the files that this rank needs to its node, from nodes that hold them. Returns the bytes that
// travelled between nodes, all together. SharedError{runtime}.
int64_t fetch_files(const std::filesystem::path& local, const LocalStep& found, const std::vector<int64_t>& needed,
                    Comm& comm);

}  // namespace rw
