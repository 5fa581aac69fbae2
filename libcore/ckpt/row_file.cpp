#include "libcore/ckpt/row_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"

namespace rw {

namespace {}  // namespace

RowFile::RowFile(const std::filesystem::path& file, For what) : path_(file) {
  const int mode = (what == For::reading ? O_RDONLY : O_WRONLY) | O_CLOEXEC;
  fd_ = ::open(file.c_str(), mode);
  if (fd_ < 0) os_failed(path_, what == For::reading ? "opening it" : "opening it for writing", errno);
  direct_fd_ = ::open(file.c_str(), mode | O_DIRECT);
}
RowFile::~RowFile() {
  if (fd_ >= 0) ::close(fd_);
  if (direct_fd_ >= 0) ::close(direct_fd_);
}

const char* RowFile::read(int64_t at, int64_t bytes, char* buffer) const {
  const bool direct = bytes >= kDirectBytes && direct_fd_ >= 0;
  const int64_t skip = direct ? at % kAlign : 0, begin = at - skip;
  // Of a direct read whole pages; the last one may reach over the file's end.
  const int64_t end = direct ? (at + bytes + kAlign - 1) / kAlign * kAlign : at + bytes;
  int fd = direct ? direct_fd_ : fd_;
  for (int64_t done = 0; done < skip + bytes;) {
    const ssize_t n = ::pread(fd, buffer + done, static_cast<size_t>(end - begin - done), begin + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd == direct_fd_) {
      fd = fd_;
      continue;
    }
    if (n < 0) os_failed(path_, fmt::format("reading {} bytes at {}", bytes, at), errno);
    if (n == 0)
      fail(ErrorKind::verdict, "{}: damaged: expected {} bytes at {}, found its end", path_.string(), bytes, at);
    done += n;
    if (done % kAlign != 0) fd = fd_;  // the end of the file, or a short read that direct reads cannot go on from
  }
  return buffer + skip;
}

void RowFile::write(const char* data, int64_t bytes, int64_t at) {
  const int64_t direct = direct_fd_ >= 0 && bytes >= kDirectBytes ? bytes / kAlign * kAlign : 0;
  int fd = direct > 0 ? direct_fd_ : fd_;
  for (int64_t done = 0; done < bytes;) {
    if (done >= direct || done % kAlign != 0) fd = fd_;
    const int64_t part = (fd == direct_fd_ ? direct : bytes) - done;
    const ssize_t n = ::pwrite(fd, data + done, static_cast<size_t>(part), at + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && fd != fd_) {
      fd = fd_;
      continue;
    }
    if (n <= 0) os_failed(path_, fmt::format("writing {} bytes at {}", part, at + done), errno);
    done += n;
  }
}

void RowFile::sync() {
  if (::fsync(fd_) != 0) os_failed(path_, "syncing it to disk", errno);
}

// Network file systems report a full disk here.
void RowFile::close() {
  const int direct = std::exchange(direct_fd_, -1), plain = std::exchange(fd_, -1);
  if (direct >= 0 && ::close(direct) != 0) {
    const int error = errno;
    ::close(plain);
    os_failed(path_, "closing it", error);
  }
  if (::close(plain) != 0) os_failed(path_, "closing it", errno);
}

std::shared_ptr<RowFile> RowFiles::open(size_t i) {
  constexpr size_t kMostOpen = 100;
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(i); found != open_.end()) return found->second;
  if (open_.size() >= kMostOpen) open_.clear();
  return open_[i] = std::make_shared<RowFile>(paths_[i], what_);
}

void RowFiles::close_all() {
  const std::lock_guard lock(mutex_);
  open_.clear();
}

}  // namespace rw
