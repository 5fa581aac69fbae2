#include "libcore/ckpt/file_digests.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/hash.h"
#include "libcore/base/os_error.h"
#include "libcore/base/workers.h"
#include "libcore/ckpt/shard_digests.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Stays in the second level cache between the read and the digest; the kernel reads ahead meanwhile, which was as fast
// as direct reads with several in flight, and leaves the file in the page cache for whoever maps it next.
constexpr int64_t kReadBytes = int64_t{1} << 20;

class InputFile {
 public:
  explicit InputFile(const fs::path& file) : fd_(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ >= 0) ::posix_fadvise(fd_, 0, 0, POSIX_FADV_SEQUENTIAL);
  }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  bool is_open() const { return fd_ >= 0; }
  // -1 when it is no regular file.
  int64_t bytes() const {
    struct stat info;
    return ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode) ? static_cast<int64_t>(info.st_size) : -1;
  }
  // Bytes read, fewer than asked only at the end of the file; -1 and errno when reading fails.
  int64_t read(char* data, int64_t bytes) const {
    int64_t done = 0;
    while (done < bytes) {
      const ssize_t n = ::read(fd_, data + done, static_cast<size_t>(bytes - done));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return -1;
      if (n == 0) break;
      done += n;
    }
    return done;
  }

 private:
  int fd_;
};

std::string cause() { return os_error_text(errno); }

ByteRange range_of(const ExpectedPiece& p) {
  return {p.piece->at, p.piece->at + p.piece->box.size() * dtype_bytes(p.tensor->info.dtype)};
}

std::string size_fault(const ExpectedFile& file, int64_t found) {
  return fmt::format("{}: expected {} bytes (key 'files' of {}), found {}: it was {}", file.path.string(),
                     file.record.bytes, kManifestName, found, found < file.record.bytes ? "cut" : "extended");
}

std::vector<std::string> faults_of(const ExpectedFile& file, const std::function<void(int64_t)>& progress) {
  const InputFile in(file.path);
  if (!in.is_open() && errno == ENOENT) {
    return {fmt::format("{}: listed in {} with {} bytes, found no such file", file.path.string(), kManifestName,
                        file.record.bytes)};
  }
  if (!in.is_open()) return {fmt::format("{}: opening it failed: {}", file.path.string(), cause())};
  const int64_t bytes = in.bytes();
  if (bytes < 0) return {fmt::format("{}: expected a file, found something else", file.path.string())};
  if (bytes != file.record.bytes) return {size_fault(file, bytes)};

  ShardDigests digests = digests_of(file);
  const auto buffer = std::make_unique<char[]>(static_cast<size_t>(kReadBytes));
  for (int64_t at = 0; at < bytes;) {
    const int64_t part = std::min(kReadBytes, bytes - at), n = in.read(buffer.get(), part);
    if (n < 0) return {fmt::format("{}: reading {} bytes at {} failed: {}", file.path.string(), part, at, cause())};
    digests.update(buffer.get(), n);
    at += n;
    if (n < part) return {size_fault(file, at)};  // cut while it was read
    if (progress) progress(n);
  }
  return digest_faults(file, digests);
}

}  // namespace

ShardDigests digests_of(const ExpectedFile& file) {
  std::vector<ByteRange> ranges;
  for (const ExpectedPiece& p : file.pieces) ranges.push_back(range_of(p));
  return {ranges, file.record.bytes};
}

std::vector<std::string> digest_faults(const ExpectedFile& file, const ShardDigests& digests) {
  std::vector<std::string> faults;
  for (size_t i = 0; i < file.pieces.size(); ++i) {
    const ExpectedPiece& p = file.pieces[i];
    if (digests.piece(i) == p.piece->digest) continue;
    const ByteRange range = range_of(p);
    faults.push_back(fmt::format("{}: tensor {} {} (bytes {} to {}): expected digest {}, found {}", file.path.string(),
                                 p.tensor->info.name, box_text(p.piece->box), range.begin, range.end,
                                 hex64(p.piece->digest), hex64(digests.piece(i))));
  }
  if (digests.rest() != file.record.rest_digest) {
    faults.push_back(fmt::format("{}: outside the tensors (HDF5 structures, padding): expected digest {}, found {}",
                                 file.path.string(), hex64(file.record.rest_digest), hex64(digests.rest())));
  }
  return faults;
}

std::vector<ExpectedFile> expected_files(const Manifest& manifest, const fs::path& dir) {
  std::vector<ExpectedFile> files;
  for (const FileRecord& record : manifest.files) files.push_back({dir / record.name, record, {}});
  for (const TensorRecord& tensor : manifest.tensors) {
    for (const PieceRecord& piece : tensor.pieces) {
      files[static_cast<size_t>(piece.file)].pieces.push_back({&tensor, &piece});
    }
  }
  return files;
}

std::vector<std::string> file_faults(const std::vector<ExpectedFile>& files, int threads,
                                     const std::function<void(int64_t bytes)>& progress) {
  std::vector<std::vector<std::string>> faults(files.size());
  run_jobs(files.size(), threads, [&](size_t f) { faults[f] = faults_of(files[f], progress); });
  std::vector<std::string> all;
  for (std::vector<std::string>& of_file : faults) {
    all.insert(all.end(), std::make_move_iterator(of_file.begin()), std::make_move_iterator(of_file.end()));
  }
  return all;
}

}  // namespace rw
