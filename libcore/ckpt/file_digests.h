// Reading whole files at the disk's speed to compare them with their digests.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/shard_digests.h"

namespace rw {

// What one file of a checkpoint is expected to hold.
struct ExpectedPiece {
  const TensorRecord* tensor;
  const PieceRecord* piece;
};
struct ExpectedFile {
  std::filesystem::path path;
  FileRecord record;
  std::vector<ExpectedPiece> pieces;  // any order
};
// The files of a manifest in a directory.
std::vector<ExpectedFile> expected_files(const Manifest& manifest, const std::filesystem::path& dir);

// Takes the digests of such a file as its bytes pass; afterwards a line per fault that names file, tensor, box, byte
// range, expected and found; empty when all is well.
ShardDigests digests_of(const ExpectedFile& file);
std::vector<std::string> digest_faults(const ExpectedFile& file, const ShardDigests& digests);

// Reads every byte of the files once, `threads` of them at a time, and compares it with the digests: digest_faults()
// of all, or what is wrong with a file's size. `progress` (may be null) is
// told bytes read since the last call, from any of the threads.
std::vector<std::string> file_faults(const std::vector<ExpectedFile>& files, int threads,
                                     const std::function<void(int64_t bytes)>& progress);

}  // namespace rw
