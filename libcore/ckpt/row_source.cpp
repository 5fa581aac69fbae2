#include "libcore/ckpt/row_source.h"

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/row_file.h"
#include "libcore/ckpt/shard_file.h"
#include "libcore/tensor/elements.h"

namespace rw {

namespace fs = std::filesystem;

int64_t n_rows(const Shape& shape) { return shape.empty() ? 1 : shape[0]; }

int64_t row_bytes(const TensorInfo& tensor) {
  int64_t bytes = dtype_bytes(tensor.dtype);
  for (size_t d = 1; d < tensor.shape.size(); ++d) bytes *= tensor.shape[d];
  return bytes;
}

const TensorInfo* find_tensor(const std::vector<TensorInfo>& sorted, const std::string& name) {
  const auto at = std::lower_bound(sorted.begin(), sorted.end(), name,
                                   [](const TensorInfo& t, const std::string& n) { return t.name < n; });
  return at != sorted.end() && at->name == name ? &*at : nullptr;
}

Box band_box(const Shape& shape, Band band) { return band_part(whole(shape), band); }

Box band_part(const Box& box, Band band) {
  if (box.offset.empty()) return box;
  Box part = box;
  part.offset[0] = std::max(box.offset[0], band.first);
  part.extent[0] = std::max<int64_t>(0, std::min(box.offset[0] + box.extent[0], band.first + band.n) - part.offset[0]);
  return part;
}

namespace {

[[noreturn]] void damaged(const fs::path& file, const std::string& what, uint64_t expected, uint64_t found) {
  fail(ErrorKind::verdict, "{}: damaged: {}: expected digest {}, found {}; `dckpt verify` lists all damage",
       file.string(), what, hex64(expected), hex64(found));
}

int64_t piece_bytes(const TensorInfo& info, const Box& box) { return box.size() * dtype_bytes(info.dtype); }

char* align(char* p) {
  const auto beyond = static_cast<int64_t>(reinterpret_cast<uintptr_t>(p) % RowFile::kAlign);
  return beyond == 0 ? p : p + (RowFile::kAlign - beyond);
}

class CheckpointReader : public RowReader {
 public:
  CheckpointReader(const TensorRecord& tensor, RowFiles& files)
      : tensor_(tensor), files_(files), hashes_(tensor.pieces.size()), read_(tensor.pieces.size(), 0) {}

  int64_t buffer_bytes(int64_t rows) const override {
    const int64_t bytes = rows * row_bytes(tensor_.info), aligned = 3 * RowFile::kAlign;
    return bytes + (bytes / RowFile::kDirectBytes + 1) * aligned;
  }

  // A piece's rows lie one after another in its file, so a band's part of it is one read.
  std::vector<BandPart> read(Band band, char* buffer) override {
    std::vector<BandPart> parts;
    for (size_t i = 0; i < tensor_.pieces.size(); ++i) {
      const PieceRecord& piece = tensor_.pieces[i];
      const Box part = band_part(piece.box, band);
      const int64_t bytes = piece_bytes(tensor_.info, part);
      if (bytes == 0) continue;
      if (bytes >= RowFile::kDirectBytes) buffer = align(buffer);
      const char* data = files_.open(static_cast<size_t>(piece.file))->read(piece.at + read_[i], bytes, buffer);
      hashes_[i].update(data, bytes);
      read_[i] += bytes;
      parts.push_back({part, data});
      buffer += RowFile::room(bytes);
    }
    return parts;
  }

  void finish() override {
    for (size_t i = 0; i < tensor_.pieces.size(); ++i) {
      const PieceRecord& piece = tensor_.pieces[i];
      if (hashes_[i].digest() != piece.digest)
        damaged(files_.path(static_cast<size_t>(piece.file)),
                fmt::format("tensor {} {} (bytes {} to {})", tensor_.info.name, box_text(piece.box), piece.at,
                            piece.at + piece_bytes(tensor_.info, piece.box)),
                piece.digest, hashes_[i].digest());
    }
  }

 private:
  const TensorRecord& tensor_;
  RowFiles& files_;
  std::vector<StreamHash> hashes_;
  std::vector<int64_t> read_;  // bytes of each piece
};

class CheckpointRows : public RowSource {
 public:
  CheckpointRows(const fs::path& dir, const Manifest& manifest) : dir_(dir), manifest_(manifest) {
    std::vector<fs::path> paths;
    for (const FileRecord& record : manifest_.files) {
      const fs::path file = dir / record.name;
      std::error_code error;
      const auto bytes = fs::file_size(file, error);
      if (error)
        fail(ErrorKind::verdict, "{}: damaged: listed in the manifest, found {}", file.string(), error.message());
      if (static_cast<int64_t>(bytes) != record.bytes)
        fail(ErrorKind::verdict, "{}: damaged: expected {} bytes, found {}", file.string(), record.bytes, bytes);
      paths.push_back(file);
    }
    files_ = std::make_unique<RowFiles>(std::move(paths), RowFile::For::reading);
    pieces_.resize(files_->size());
    for (const TensorRecord& t : manifest_.tensors) {
      tensors_.push_back(t.info);
      for (const PieceRecord& p : t.pieces)
        pieces_[static_cast<size_t>(p.file)].push_back({p.at, p.at + piece_bytes(t.info, p.box)});
    }
  }

  std::string where() const override { return dir_.string(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  std::unique_ptr<RowReader> open(size_t tensor) const override {
    return std::make_unique<CheckpointReader>(manifest_.tensors[tensor], *files_);
  }

  int64_t n_rests() const override { return static_cast<int64_t>(files_->size()); }
  void check_rest(int64_t i) const override {
    const FileRecord& record = manifest_.files[static_cast<size_t>(i)];
    const auto file = files_->open(static_cast<size_t>(i));
    std::vector<char> buffer(static_cast<size_t>(kRestBytes));  // small reads need no alignment
    StreamHash hash;
    for (const ByteRange& gap : outside(pieces_[static_cast<size_t>(i)], record.bytes)) {
      for (int64_t at = gap.begin; at < gap.end; at += kRestBytes) {
        const int64_t n = std::min(kRestBytes, gap.end - at);
        hash.update(file->read(at, n, buffer.data()), n);
      }
    }
    if (hash.digest() != record.rest_digest)
      damaged(file->path(), "outside the tensors (HDF5 structures, padding)", record.rest_digest, hash.digest());
  }

 private:
  static constexpr int64_t kRestBytes = RowFile::kDirectBytes / 2;
  fs::path dir_;
  Manifest manifest_;
  std::unique_ptr<RowFiles> files_;             // in the manifest's order
  std::vector<std::vector<ByteRange>> pieces_;  // of each file
  std::vector<TensorInfo> tensors_;
};

// Reads whole rows of a TensorSource; converts through f32.
class ConvertedReader : public RowReader {
 public:
  ConvertedReader(const TensorSource& source, const TensorInfo& stored, DType dtype)
      : source_(source), stored_(stored), dtype_(dtype), as_(stored.dtype == dtype ? dtype : DType::f32) {}

  int64_t buffer_bytes(int64_t rows) const override {
    const int64_t elements = rows * (row_bytes(stored_) / dtype_bytes(stored_.dtype));
    const int64_t converted = as_ == dtype_ ? 0 : dtype_bytes(dtype_);
    // The source's own memory too: it may be a mapped file, of which these rows are there while they are read.
    return elements * (dtype_bytes(as_) + converted + dtype_bytes(stored_.dtype)) + RowFile::kAlign;
  }
  std::vector<BandPart> read(Band band, char* buffer) override {
    const Box box = band_box(stored_.shape, band);
    const int64_t n = box.size();
    source_.read(stored_.name, box, as_, buffer);
    if (as_ == dtype_) return {{box, buffer}};
    if (dtype_ == DType::f16) check_fits_f16(reinterpret_cast<const float*>(buffer), n, stored_.name, source_.where());
    char* converted = buffer + n * dtype_bytes(as_);
    convert_elements(buffer, as_, converted, dtype_, n);
    return {{box, converted}};
  }
  void finish() override {}

 private:
  const TensorSource& source_;
  const TensorInfo& stored_;
  DType dtype_, as_;
};

class ConvertedRows : public RowSource {
 public:
  ConvertedRows(const TensorSource& source, DType dtype) : source_(source) {
    for (const TensorInfo& t : source.tensors())
      tensors_.push_back({t.name, t.name.find('/') == std::string::npos ? dtype : t.dtype, t.shape});
  }
  std::string where() const override { return source_.where(); }
  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  std::unique_ptr<RowReader> open(size_t tensor) const override {
    return std::make_unique<ConvertedReader>(source_, source_.tensors()[tensor], tensors_[tensor].dtype);
  }
  int64_t n_rests() const override { return 0; }
  void check_rest(int64_t) const override {}

 private:
  const TensorSource& source_;
  std::vector<TensorInfo> tensors_;
};

}  // namespace

std::unique_ptr<RowSource> checkpoint_rows(const fs::path& dir, const Manifest& manifest) {
  return std::make_unique<CheckpointRows>(dir, manifest);
}

std::unique_ptr<RowSource> converted_rows(const TensorSource& source, DType dtype) {
  return std::make_unique<ConvertedRows>(source, dtype);
}

}  // namespace rw
