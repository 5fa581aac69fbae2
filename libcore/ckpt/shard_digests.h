// Digests of a file's pieces and of the rest, in one pass over its bytes: writing takes them from memory, verifying
// from the file.
#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "libcore/base/hash.h"
#include "libcore/ckpt/shard_file.h"

namespace rw {

class ShardDigests {
 public:
  // Pieces in any order, of any length, inside a file of `bytes` bytes.
  ShardDigests(std::vector<ByteRange> pieces, int64_t bytes);
  // The next bytes of the file.
  void update(const char* data, int64_t bytes);
  // When the whole file has passed.
  uint64_t piece(size_t i) const { return digests_[i]; }
  uint64_t rest() const { return rest_.digest(); }  // outside the pieces, in file order

 private:
  struct Open {  // begun and not finished
    size_t piece;
    StreamHash hash;
  };
  std::vector<ByteRange> pieces_, gaps_;
  std::vector<size_t> order_;  // pieces by their begin
  std::vector<uint64_t> digests_;
  std::vector<Open> open_;
  StreamHash rest_;
  size_t next_piece_ = 0, next_gap_ = 0;
  int64_t at_ = 0;
};

}  // namespace rw
