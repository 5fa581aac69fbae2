// One rank's file of a checkpoint: an HDF5 file with a contiguous dataset a piece. HDF5 lays the file out; the data go
// in by plain writes at the datasets' offsets, at raw disk speed and past the library's global lock.
#pragma once
#include <filesystem>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/tensor/source.h"

namespace rw {

// Writes and fsyncs `file`; digests are taken from memory in the pass that writes. Pieces with an empty box get no
// dataset. Error{runtime} names the file, what was being done, the bytes and the cause.
ShardRecord write_shard_file(const std::filesystem::path& file, const std::vector<TensorPiece>& pieces);

// A range of bytes of a file.
struct ByteRange {
  int64_t begin, end;
};
// What lies outside `pieces` (any order, not overlapping) in a file of `bytes` bytes, in file order.
std::vector<ByteRange> outside(std::vector<ByteRange> pieces, int64_t bytes);

}  // namespace rw
