#include "libcore/ckpt/shard_image.h"

#include <algorithm>
#include <map>

#include "libcore/base/check.h"
#include "libcore/base/stream_copy.h"

namespace rw {

namespace {

int64_t bytes_of(const TensorPiece& piece) { return piece.box.size() * dtype_bytes(piece.dtype); }

void add_piece(std::map<std::string, TensorRecord>& by_name, const TensorPiece& piece) {
  CHECK(!piece.name.empty() && piece.box.offset.size() == piece.shape.size() &&
            piece.box.extent.size() == piece.shape.size() && contains(piece.shape, piece.box),
        "piece '%s': box %s of shape %s", piece.name.c_str(), box_text(piece.box).c_str(),
        shape_text(piece.shape).c_str());
  const TensorInfo info{piece.name, piece.dtype, piece.shape};
  const TensorInfo& first = by_name.try_emplace(piece.name, TensorRecord{info, {}}).first->second.info;
  CHECK(first.dtype == piece.dtype && first.shape == piece.shape, "pieces of '%s' differ in dtype or shape",
        piece.name.c_str());
}

}  // namespace

ShardImage::ShardImage(std::vector<TensorPiece> pieces, CopyPiece copy)
    : pieces_(std::move(pieces)), copy_(copy != nullptr ? std::move(copy) : stream_copy) {
  std::map<std::string, TensorRecord> by_name;
  for (const TensorPiece& piece : pieces_) add_piece(by_name, piece);
}

bool ShardImage::fits(const std::vector<TensorPiece>& pieces) const {
  return std::equal(pieces.begin(), pieces.end(), pieces_.begin(), pieces_.end(),
                    [](const TensorPiece& a, const TensorPiece& b) {
                      return a.dtype == b.dtype && a.name == b.name && a.shape == b.shape && a.box == b.box;
                    });
}

void ShardImage::set_data(const std::vector<TensorPiece>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) pieces_[i].data = pieces[i].data;
}

void ShardImage::lay_out() {
  layout_ = lay_out_shard(pieces_);
  ranges_.clear(), in_file_.clear();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const int64_t at = layout_.offsets[i];
    ranges_.push_back(at < 0 ? ByteRange{0, 0} : ByteRange{at, at + bytes_of(pieces_[i])});
    if (at >= 0) in_file_.push_back(i);
  }
  std::sort(in_file_.begin(), in_file_.end(),
            [this](size_t a, size_t b) { return ranges_[a].begin < ranges_[b].begin; });
}

void ShardImage::fill(int64_t begin, int64_t end, char* dst) const {
  auto next = std::upper_bound(in_file_.begin(), in_file_.end(), begin,
                               [this](int64_t at, size_t i) { return at < ranges_[i].end; });
  for (int64_t at = begin; at < end;) {
    const ByteRange range = next == in_file_.end() ? ByteRange{end, end} : ranges_[*next];
    if (at < range.begin) {
      const int64_t n = std::min(end, range.begin) - at;
      layout_.image.read(at, dst + (at - begin), n);
      at += n;
    } else {
      const int64_t n = std::min(end, range.end) - at;
      const char* data = static_cast<const char*>(pieces_[*next].data);
      copy_(dst + (at - begin), data + (at - range.begin), n);
      at += n;
      ++next;
    }
  }
}

ShardRecord ShardImage::record(const std::string& file_name, const ShardDigests& digests) const {
  std::map<std::string, TensorRecord> by_name;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const TensorPiece& piece = pieces_[i];
    TensorRecord& tensor =
        by_name.try_emplace(piece.name, TensorRecord{{piece.name, piece.dtype, piece.shape}, {}}).first->second;
    if (layout_.offsets[i] >= 0) tensor.pieces.push_back({piece.box, 0, layout_.offsets[i], digests.piece(i)});
  }
  ShardRecord shard;
  shard.file = {file_name, bytes(), digests.rest()};
  for (auto& [name, tensor] : by_name) shard.tensors.push_back(std::move(tensor));
  return shard;
}

}  // namespace rw
