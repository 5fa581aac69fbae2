// A checkpoint written anew in any layout, from a checkpoint in another or from any source of tensors, without ever
// holding more than a few rows of a few tensors: each tensor is read once, in order, digested, cut into the new boxes
// and written to where they belong in the new files. Committed as a save is.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/ckpt/row_source.h"
#include "libcore/comm/comm.h"
#include "libcore/tensor/source.h"

namespace rw {

struct NewCheckpoint {
  std::filesystem::path checkpoints_dir;
  int64_t step = 0;
  // What each file (rank-00000.h5, ...) holds, as for save_checkpoint(): together every tensor of the source. `data` is
  // not looked at; dtypes are the source's.
  std::vector<std::vector<TensorPiece>> files;
  std::string identity, state;  // JSON texts
};

struct ReshardOptions {
  int64_t memory_bytes = int64_t{1} << 30;  // of this process, for all that passes through it
  int threads = 4;                          // tensors under way at the same time; more hide more of the disk's waits
  // Told the bytes of tensors that this process wrote since the last call, from any of its threads.
  std::function<void(int64_t bytes)> progress = nullptr;
};

struct ReshardReport {
  int64_t bytes = 0;  // of the tensors, all processes together
  double seconds = 0;
};

// Collective: the tensors are dealt out to the ranks of `comm`; every rank passes the same. Throws SharedError on all
// ranks alike, and nothing is left of the new step: verdict when the source is damaged (it names file, tensor and
// bytes); usage when memory_bytes is too small for a row (it says how much is enough); input when the files do not hold
// the source's tensors; runtime when reading or writing fails.
ReshardReport reshard(const RowSource& source, const NewCheckpoint& target, const ReshardOptions& options, Comm& comm);

}  // namespace rw
