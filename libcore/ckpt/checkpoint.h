// Checkpoints: a directory of one HDF5 file per rank and a manifest.
//
//   checkpoints/step-00000100/        committed: this name and a manifest that verifies
//     rank-00000.h5 ...               contiguous datasets, one per piece (name + box), 4 KiB aligned
//     manifest.json                   identity, step, state, and for every piece: tensor, box, dtype, file, byte
//     offset, digest
//   checkpoints/step-00000100.tmp/    a save under way, or one that was interrupted: ignored, removed by the next save
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/ckpt/manifest.h"
#include "libcore/comm/comm.h"
#include "libcore/tensor/source.h"

namespace rw {

struct SaveReport {
  double seconds = 0;
  int64_t bytes = 0;  // of all ranks
};

// Collective. Every rank passes its own pieces (a box of a tensor must be written by one rank only; together they cover
// every tensor; empty boxes are legal). `identity` (run id, model, ...) and `state` (step, data position, loss scale,
// ...) are rank 0's. Commits only when every rank's file is complete and fsynced; otherwise throws SharedError{runtime}
// on all ranks alike with the first cause (disk full names the path and the bytes), leaving earlier checkpoints
// untouched. `copy` reads pieces that do not lie in the host's memory.
SaveReport save_checkpoint(const std::filesystem::path& checkpoints_dir, int64_t step,
                           const std::vector<TensorPiece>& pieces, const Json& identity, const Json& state, Comm& comm,
                           const CopyPiece& copy = nullptr);

// Where a box of a tensor lies.
struct StoredPiece {
  Box box;
  std::string file;  // in the checkpoint's directory
  int64_t at;        // byte offset in it
};

// A committed checkpoint, readable by boxes whatever layout wrote it. Reading needs no HDF5: files are mapped and the
// manifest says where each box lies.
class Checkpoint : public TensorSource {
 public:
  // all: every file of the manifest must be there. those_here: a node's own part of a checkpoint; reading what lies in
  // another file is an Error{input}.
  enum class Files { all, those_here };
  // `dir` is the step-N directory. Error{input} when the manifest is missing, unreadable or does not verify, when a
  // file is missing or short, or when the pieces do not cover a tensor.
  explicit Checkpoint(const std::filesystem::path& dir, Files files = Files::all);
  ~Checkpoint() override;
  std::string where() const override;
  const std::vector<TensorInfo>& tensors() const override;
  void read(const std::string& name, const Box& box, DType dst_type, void* dst) const override;
  int64_t step() const;
  const Json& identity() const;
  const Json& state() const;
  int64_t bytes() const;
  int64_t n_files() const;
  std::vector<StoredPiece> pieces(const std::string& name) const;
  const Manifest& manifest() const;
  // Compares every byte of every file that is here with the digests; returns a line per fault, empty when all is well.
  // `progress` (may be null) is told the bytes read since its last call, from several threads.
  std::vector<std::string> verify(const std::function<void(int64_t bytes)>& progress = nullptr) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct CheckpointEntry {
  int64_t step;
  std::filesystem::path dir;
};
// Committed steps in ascending order; uncommitted or incomplete ones are named in `ignored` with the reason. Digests of
// tensors are not read: that is verify()'s work.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& checkpoints_dir,
                                              std::vector<std::string>* ignored = nullptr);
// Removes all but the newest `keep_last` (0 = keep all) and those whose step is a multiple of keep_every (0 = none).
void prune_checkpoints(const std::filesystem::path& checkpoints_dir, int64_t keep_last, int64_t keep_every);

}  // namespace rw
