#include "libcore/ckpt/shard_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <system_error>
#include <utility>

#include "libcore/base/check.h"
#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/shard_layout.h"

namespace rw {

namespace {

constexpr int64_t kWriteBytes = int64_t{1} << 20;  // a part is digested while it is in the cache, then written

class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& file)
      : file_(file), fd_(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (fd_ < 0) failed("creating it");
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  // Says that the disk is full before hours of writing would; file systems that cannot reserve find out as they go.
  void reserve(int64_t bytes) {
    if (::ftruncate(fd_, bytes) != 0) failed(fmt::format("giving it its {} bytes", bytes));
    if (::fallocate(fd_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
      failed(fmt::format("reserving {} bytes", bytes));
    }
  }

  // Returns the digest.
  uint64_t write(const char* data, int64_t bytes, int64_t at) {
    StreamHash hash;
    for (int64_t done = 0; done < bytes;) {
      const int64_t part = std::min(bytes - done, kWriteBytes);
      hash.update(data + done, part);
      write_part(data + done, part, at + done);
      done += part;
    }
    return hash.digest();
  }

  // Network file systems report a full disk here.
  void sync_and_close() {
    if (::fsync(fd_) != 0) failed("syncing it to disk");
    const int fd = std::exchange(fd_, -1);
    if (::close(fd) != 0) failed("closing it");
  }

 private:
  void write_part(const char* data, int64_t bytes, int64_t at) {
    for (int64_t done = 0; done < bytes;) {
      const ssize_t n = ::pwrite(fd_, data + done, static_cast<size_t>(bytes - done), at + done);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) failed(fmt::format("writing {} bytes at {}", bytes - done, at + done));
      done += n;
    }
  }

  [[noreturn]] void failed(const std::string& action) const {
    const std::string cause = std::error_code(errno, std::generic_category()).message();
    fail(ErrorKind::runtime, "{}: {} failed: {}", file_.string(), action, cause);
  }

  std::filesystem::path file_;
  int fd_;
};

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

uint64_t rest_digest(const FileImage& image, const std::vector<ByteRange>& written) {
  StreamHash hash;
  std::vector<char> part(FileImage::kPageBytes);
  for (const ByteRange& gap : outside(written, image.bytes)) {
    for (int64_t at = gap.begin; at < gap.end; at += FileImage::kPageBytes) {
      const int64_t n = std::min(FileImage::kPageBytes, gap.end - at);
      image.read(at, part.data(), n);
      hash.update(part.data(), n);
    }
  }
  return hash.digest();
}

}  // namespace

std::vector<ByteRange> outside(std::vector<ByteRange> pieces, int64_t bytes) {
  std::sort(pieces.begin(), pieces.end(), [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> gaps;
  int64_t at = 0;
  for (const ByteRange& piece : pieces) {
    if (piece.begin > at) gaps.push_back({at, piece.begin});
    at = std::max(at, piece.end);
  }
  if (at < bytes) gaps.push_back({at, bytes});
  return gaps;
}

ShardRecord write_shard_file(const std::filesystem::path& file, const std::vector<TensorPiece>& pieces) {
  std::map<std::string, TensorRecord> by_name;
  for (const TensorPiece& piece : pieces) add_piece(by_name, piece);

  const ShardLayout layout = lay_out_shard(pieces);
  OutputFile out(file);
  out.reserve(layout.image.bytes);
  for (const auto& [number, page] : layout.image.pages) {
    const int64_t at = number * FileImage::kPageBytes;
    out.write(page.data(), std::min(FileImage::kPageBytes, layout.image.bytes - at), at);
  }
  std::vector<ByteRange> written;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const TensorPiece& piece = pieces[i];
    if (layout.offsets[i] < 0) continue;
    const uint64_t digest = out.write(static_cast<const char*>(piece.data), bytes_of(piece), layout.offsets[i]);
    by_name.at(piece.name).pieces.push_back({piece.box, 0, layout.offsets[i], digest});
    written.push_back({layout.offsets[i], layout.offsets[i] + bytes_of(piece)});
  }
  out.sync_and_close();

  ShardRecord shard;
  shard.file = {file.filename().string(), layout.image.bytes, rest_digest(layout.image, written)};
  for (auto& [name, tensor] : by_name) shard.tensors.push_back(std::move(tensor));
  return shard;
}

}  // namespace rw
