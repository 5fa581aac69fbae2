// The bytes of a rank's file as they follow from its pieces: HDF5's own structures, padding of zeros, data. Laid out
// once and then filled with new data as often as wanted.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/shard_digests.h"
#include "libcore/ckpt/shard_layout.h"
#include "libcore/tensor/source.h"

namespace rw {

class ShardImage {
 public:
  explicit ShardImage(std::vector<TensorPiece> pieces, CopyPiece copy = nullptr);
  // The same file but for the data: names, dtypes, shapes and boxes agree.
  bool fits(const std::vector<TensorPiece>& pieces) const;
  void set_data(const std::vector<TensorPiece>& pieces);  // which must fit

  // Asks HDF5 for the layout; before it the functions below may not be called. Error{runtime} with HDF5's words.
  void lay_out();
  bool laid_out() const { return layout_.image.bytes > 0; }
  int64_t bytes() const { return layout_.image.bytes; }
  // dst = bytes [begin, end) of the file; from any number of threads.
  void fill(int64_t begin, int64_t end, char* dst) const;
  ShardDigests digests() const { return {ranges_, bytes()}; }
  // What the file holds, once all of its bytes have passed through `digests`.
  ShardRecord record(const std::string& file_name, const ShardDigests& digests) const;

 private:
  std::vector<TensorPiece> pieces_;
  CopyPiece copy_;
  ShardLayout layout_;
  std::vector<ByteRange> ranges_;  // of each piece in the file; empty boxes: [0, 0)
  std::vector<size_t> in_file_;    // pieces with data, in file order
};

}  // namespace rw
