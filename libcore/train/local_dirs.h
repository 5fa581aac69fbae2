// Where the nodes keep the local tier of a run.
#pragma once
#include <filesystem>
#include <string>

#include "libcore/comm/comm.h"

namespace rw {

// Collective. The folder in which this node looks for what an earlier start left: its own, or, when nodes were numbered
// otherwise then (one is gone), one that fits the pattern, lies here and is no present node's.
std::filesystem::path local_dir_to_read(const std::string& pattern, const std::string& run_id, Comm& comm);

// Collective. Makes each node's folder and makes sure that no two nodes share one, where they would destroy each
// other's files; SharedError{usage} when they do.
void claim_local_dir(const std::filesystem::path& dir, Comm& comm);

}  // namespace rw
