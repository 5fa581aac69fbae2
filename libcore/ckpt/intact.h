// Opening a checkpoint only when every byte of it is right: what trains or is exported must not start from damaged
// bytes.
#pragma once
#include <filesystem>
#include <memory>

#include "libcore/ckpt/checkpoint.h"
#include "libcore/comm/comm.h"

namespace rw {

// Error{verdict} lists the faults; Error{input} when there is no checkpoint to look at.
std::unique_ptr<Checkpoint> intact_checkpoint(const std::filesystem::path& dir);
// Collective: the files are read once, each by one rank. SharedError on all ranks alike.
std::unique_ptr<Checkpoint> intact_checkpoint(const std::filesystem::path& dir, Comm& comm);

}  // namespace rw
