// How a flat parameter buffer is dealt to the ranks of a ZeRO group: every group of parameters is cut, at row
// boundaries nearest to equal parts, into one slice a rank, so that a slice is a few row boxes of parameters and a
// collective's part.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/comm/comm.h"
#include "libcore/model/param_layout.h"

namespace rw {

// Rows of one parameter that a rank has.
struct ShardPiece {
  size_t param;      // of the layout
  RowSpan rows;      // of its box
  int64_t offset;    // in the layout's flat buffer
  int64_t shard_at;  // in the rank's own buffer
  int64_t n;         // elements
};

class Shards {
 public:
  Shards(const ParamLayout& layout, int ranks, int rank);
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  // Of a group: ranks + 1 element offsets, from the group's start.
  Cuts cuts(int64_t group) const;
  Range slice(int64_t group, int rank) const;  // in the layout's flat buffer
  Range own(int64_t group) const { return slice(group, rank_); }
  int64_t shard_at(int64_t group) const {
    return shard_at_[static_cast<size_t>(group)];
  }                                                     // where own(group) lies in the rank's own buffer
  int64_t shard_total() const { return shard_total_; }  // elements of the rank's own buffer
  const std::vector<ShardPiece>& own_pieces() const { return own_pieces_; }  // in table order
  std::vector<ShardPiece> pieces(int64_t group, int rank) const;

 private:
  const ParamLayout& layout_;
  int ranks_, rank_;
  std::vector<int64_t> cuts_;      // (groups, ranks + 1)
  std::vector<int64_t> shard_at_;  // (groups)
  int64_t shard_total_ = 0;
  std::vector<ShardPiece> own_pieces_;
};

}  // namespace rw
