#include "libcore/train/shards.h"

#include <algorithm>

namespace rw {
namespace {

constexpr int64_t kAlign = 16;  // elements: slices start at cache lines in the rank's own buffer

// The row boundary of the group's parameters nearest to `at`, an offset in the flat buffer.
int64_t nearest_row(const ParamLayout& layout, const ParamGroup& group, int64_t at) {
  for (size_t i = group.first_param; i < group.first_param + group.n_params; ++i) {
    const LocalParam& p = layout.params()[i];
    if (at >= p.slice.offset + p.slice.n) continue;
    const int64_t row = std::max<int64_t>(1, p.row());
    return p.slice.offset + (at - p.slice.offset + row / 2) / row * row;
  }
  return at;
}

}  // namespace

Shards::Shards(const ParamLayout& layout, int ranks, int rank) : layout_(layout), ranks_(ranks), rank_(rank) {
  for (int64_t g = 0; g < layout.n_groups(); ++g) {
    const Range range = layout.group(g).range;
    for (int r = 0; r <= ranks; ++r) {
      const int64_t even = range.n * r / ranks;
      const int64_t cut = nearest_row(layout, layout.group(g), range.offset + even) - range.offset;
      cuts_.push_back(r == ranks ? range.n : std::min(cut, range.n));
    }
    shard_at_.push_back(shard_total_);
    shard_total_ += (own(g).n + kAlign - 1) / kAlign * kAlign;
    for (const ShardPiece& piece : pieces(g, rank)) own_pieces_.push_back(piece);
  }
}

Cuts Shards::cuts(int64_t group) const {
  return {cuts_.data() + group * (ranks_ + 1), static_cast<size_t>(ranks_) + 1};
}

Range Shards::slice(int64_t group, int rank) const {
  const Cuts c = cuts(group);
  const auto r = static_cast<size_t>(rank);
  return {layout_.group(group).range.offset + c[r], c[r + 1] - c[r]};
}

std::vector<ShardPiece> Shards::pieces(int64_t group, int rank) const {
  const Range slice = this->slice(group, rank);
  std::vector<ShardPiece> result;
  const ParamGroup& g = layout_.group(group);
  for (size_t i = g.first_param; i < g.first_param + g.n_params; ++i) {
    const LocalParam& p = layout_.params()[i];
    const int64_t begin = std::max(slice.offset, p.slice.offset),
                  end = std::min(slice.offset + slice.n, p.slice.offset + p.slice.n);
    if (begin >= end) continue;
    const int64_t row = p.row();
    result.push_back({.param = i,
                      .rows = {.first = (begin - p.slice.offset) / row, .rows = (end - begin) / row},
                      .offset = begin,
                      .shard_at = shard_at(group) + begin - slice.offset,
                      .n = end - begin});
  }
  return result;
}

}  // namespace rw
