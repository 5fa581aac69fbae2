#include "libcore/ckpt/shard_digests.h"

#include <algorithm>
#include <numeric>

namespace rw {

ShardDigests::ShardDigests(std::vector<ByteRange> pieces, int64_t bytes)
    : pieces_(std::move(pieces)),
      gaps_(outside(pieces_, bytes)),
      order_(pieces_.size()),
      digests_(pieces_.size(), hash64(nullptr, 0)) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [this](size_t a, size_t b) { return pieces_[a].begin < pieces_[b].begin; });
}

void ShardDigests::update(const char* data, int64_t bytes) {
  const int64_t end = at_ + bytes;
  const auto feed = [&](StreamHash& hash, const ByteRange& range) {
    const int64_t from = std::max(at_, range.begin);
    hash.update(data + (from - at_), std::min(end, range.end) - from);
  };
  for (; next_piece_ < order_.size() && pieces_[order_[next_piece_]].begin < end; ++next_piece_) {
    const size_t i = order_[next_piece_];
    const ByteRange& range = pieces_[i];
    if (range.end > end) open_.push_back({i, StreamHash()});
    else digests_[i] = hash64(data + (range.begin - at_), range.end - range.begin);
  }
  std::erase_if(open_, [&](Open& open) {
    const ByteRange& range = pieces_[open.piece];
    feed(open.hash, range);
    if (range.end > end) return false;
    digests_[open.piece] = open.hash.digest();
    return true;
  });
  for (; next_gap_ < gaps_.size() && gaps_[next_gap_].begin < end; ++next_gap_) {
    feed(rest_, gaps_[next_gap_]);
    if (gaps_[next_gap_].end > end) break;
  }
  at_ = end;
}

}  // namespace rw
