#include "libcore/ckpt/reshard_target.h"

#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "libcore/base/direct_file.h"
#include "libcore/base/error.h"
#include "libcore/ckpt/shard_file.h"
#include "libcore/ckpt/shard_layout.h"
#include "libcore/tensor/elements.h"

namespace rw {

namespace {

uint64_t digest_of(const FileImage& image, const std::vector<ByteRange>& ranges) {
  StreamHash hash;
  std::vector<char> part(FileImage::kPageBytes);
  for (const ByteRange& range : ranges) {
    for (int64_t at = range.begin; at < range.end; at += FileImage::kPageBytes) {
      const int64_t n = std::min(FileImage::kPageBytes, range.end - at);
      image.read(at, part.data(), n);
      hash.update(part.data(), n);
    }
  }
  return hash.digest();
}

}  // namespace

TargetFiles::TargetFiles(const std::filesystem::path& dir, const std::vector<std::vector<TensorPiece>>& files)
    : pieces_(files) {
  std::vector<std::filesystem::path> paths;
  for (size_t f = 0; f < files.size(); ++f) {
    paths.push_back(dir / fmt::format("rank-{:05}.h5", f));
    ShardLayout layout = lay_out_shard(files[f]);
    std::vector<ByteRange> ranges;
    for (size_t i = 0; i < files[f].size(); ++i) {
      if (layout.offsets[i] < 0) continue;
      const TensorPiece& piece = files[f][i];
      ranges.push_back({layout.offsets[i], layout.offsets[i] + piece.box.size() * dtype_bytes(piece.dtype)});
      by_tensor_[piece.name].push_back({f, i, piece.box, layout.offsets[i]});
    }
    const uint64_t rest = digest_of(layout.image, outside(ranges, layout.image.bytes));
    layouts_.push_back({std::move(layout.image.pages), std::move(layout.offsets), layout.image.bytes, rest});
  }
  files_ = std::make_unique<RowFiles>(std::move(paths), RowFile::For::writing);
}

const std::vector<TargetPiece>& TargetFiles::pieces(const std::string& tensor) const {
  static const std::vector<TargetPiece> none;
  const auto found = by_tensor_.find(tensor);
  return found == by_tensor_.end() ? none : found->second;
}

void TargetFiles::create(size_t file) {
  const FileLayout& layout = layouts_[file];
  DirectFile(files_->path(file), FileCache::keep).reserve(layout.bytes);
  for (const auto& [number, page] : layout.pages) {
    const int64_t at = number * FileImage::kPageBytes;
    write(file, page.data(), std::min(FileImage::kPageBytes, layout.bytes - at), at);
  }
}

void TargetFiles::write(size_t file, const char* data, int64_t bytes, int64_t at) {
  files_->open(file)->write(data, bytes, at);
  const std::lock_guard lock(mutex_);
  written_.insert(file);
}

void TargetFiles::sync() {
  files_->close_all();
  for (const size_t file : written_) {
    RowFile out(files_->path(file), RowFile::For::writing);
    out.sync();
    out.close();
  }
}

ShardRecord TargetFiles::record(size_t file, const std::vector<uint64_t>& digests) const {
  std::map<std::string, TensorRecord> by_name;
  const FileLayout& layout = layouts_[file];
  for (size_t i = 0; i < pieces_[file].size(); ++i) {
    const TensorPiece& piece = pieces_[file][i];
    TensorRecord& tensor =
        by_name.try_emplace(piece.name, TensorRecord{{piece.name, piece.dtype, piece.shape}, {}}).first->second;
    if (layout.offsets[i] >= 0) tensor.pieces.push_back({piece.box, 0, layout.offsets[i], digests[i]});
  }
  ShardRecord shard;
  shard.file = {files_->path(file).filename().string(), layout.bytes, layout.rest_digest};
  for (auto& [name, tensor] : by_name) shard.tensors.push_back(std::move(tensor));
  return shard;
}

RowWriter::RowWriter(TargetFiles& files, const TensorInfo& tensor) : files_(files), tensor_(tensor) {
  for (const TargetPiece& piece : files.pieces(tensor.name)) outputs_.push_back({&piece, StreamHash(), {}, 0});
}

int64_t RowWriter::buffer_bytes(int64_t rows) const {
  return rows * row_bytes(tensor_) + RowFile::kAlign * static_cast<int64_t>(outputs_.size() + 1);
}

void RowWriter::write(Band band, const std::vector<BandPart>& parts, char* buffer) {
  const int64_t width = dtype_bytes(tensor_.dtype);
  for (Output& out : outputs_) {
    const Box box = band_part(out.piece->box, band);
    const int64_t bytes = box.size() * width;
    if (bytes == 0) continue;
    const auto kept = static_cast<int64_t>(out.tail.size());
    std::memcpy(buffer, out.tail.data(), out.tail.size());
    char* const rows = buffer + kept;
    for (const BandPart& part : parts) {
      const Box both = intersect(part.box, box);
      if (both.size() > 0) copy_part(both, {part.data, tensor_.dtype, part.box}, rows, tensor_.dtype, box);
    }
    out.hash.update(rows, bytes);
    const int64_t ready = (kept + bytes) / RowFile::kAlign * RowFile::kAlign;
    if (ready > 0) files_.write(out.piece->file, buffer, ready, out.piece->at + out.written);
    out.written += ready;
    out.tail.assign(buffer + ready, buffer + kept + bytes);
  }
}

std::vector<uint64_t> RowWriter::finish(char* buffer) {
  std::vector<uint64_t> digests;
  for (Output& out : outputs_) {
    if (!out.tail.empty()) {
      std::memcpy(buffer, out.tail.data(), out.tail.size());
      files_.write(out.piece->file, buffer, static_cast<int64_t>(out.tail.size()), out.piece->at + out.written);
    }
    digests.push_back(out.hash.digest());
  }
  return digests;
}

}  // namespace rw
