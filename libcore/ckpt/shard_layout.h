// The layout of a rank's HDF5 file, made by the HDF5 library in memory. It never touches the disk: when one of its own
// writes fails (disk full), HDF5 1.10 can neither close the file nor end the process cleanly.
#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "libcore/tensor/source.h"

namespace rw {

// A sparse file: pages that are not there are zero.
struct FileImage {
  static constexpr int64_t kPageBytes = 4096;
  std::map<int64_t, std::vector<char>> pages;  // page number -> kPageBytes bytes
  int64_t bytes = 0;                           // length of the file

  void write(int64_t at, const char* data, int64_t n);
  void read(int64_t at, char* data, int64_t n) const;
};

struct ShardLayout {
  FileImage image;               // everything but the data
  std::vector<int64_t> offsets;  // of each piece's data in the file, 4 KiB aligned; -1 for an empty box
};

// A contiguous dataset a piece, named after its tensor (several boxes of one tensor: NAME, NAME#1, NAME#2), with
// attributes "offset" and "global_shape". Error{runtime} with HDF5's words.
ShardLayout lay_out_shard(const std::vector<TensorPiece>& pieces);

}  // namespace rw
