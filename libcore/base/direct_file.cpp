#include "libcore/base/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"

namespace rw {

namespace {

constexpr int kCreate = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
// Larger buffered writes make the kernel take fresh large pages, which are slow at first touch on virtual machines.
constexpr int64_t kBufferedBytes = int64_t{1} << 20;

bool aligned(int64_t n) { return n % DirectFile::kAlignBytes == 0; }

}  // namespace

DirectFile::DirectFile(const std::filesystem::path& file, FileCache cache)
    : file_(file), can_direct_(cache == FileCache::bypass), direct_(can_direct_) {
  fd_ = ::open(file.c_str(), kCreate | (direct_ ? O_DIRECT : 0), 0666);
  if (fd_ < 0 && direct_ && errno == EINVAL) {
    can_direct_ = direct_ = false;
    fd_ = ::open(file.c_str(), kCreate, 0666);
  }
  if (fd_ < 0) failed("creating it", errno);
}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

void DirectFile::failed(const std::string& action, int error) const { os_failed(file_, action, error); }

void DirectFile::reserve(int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) failed(fmt::format("giving it its {} bytes", bytes), errno);
  if (bytes > 0 && ::fallocate(fd_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINTR) {
    failed(fmt::format("reserving {} bytes", bytes), errno);
  }
}

void DirectFile::set_direct(bool direct) {
  if (direct == direct_) return;
  const int flags = ::fcntl(fd_, F_GETFL);
  if (flags < 0 || ::fcntl(fd_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
    failed("changing to direct writing or back", errno);
  }
  direct_ = direct;
}

void DirectFile::write(const char* data, int64_t bytes, int64_t at) {
  while (bytes > 0) {
    // Memory and offset reach a boundary together, or never.
    const bool can = can_direct_ && aligned(static_cast<int64_t>(reinterpret_cast<uintptr_t>(data)) - at);
    const bool direct = can && aligned(at) && bytes >= kAlignBytes;
    // After a direct write that was cut short, up to where direct writing can go on.
    const int64_t part = direct ? bytes / kAlignBytes * kAlignBytes
                         : can  ? std::min(bytes, kAlignBytes - at % kAlignBytes)
                                : std::min(bytes, kBufferedBytes);
    set_direct(direct);
    const ssize_t n = ::pwrite(fd_, data, static_cast<size_t>(part), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && direct) {
      can_direct_ = false;
      continue;
    }
    if (n <= 0) failed(fmt::format("writing {} bytes at {}", part, at), n < 0 ? errno : EIO);
    // The disk starts on what is in the cache, so that the final sync need not write it all at once.
    if (!can_direct_) ::sync_file_range(fd_, at, n, SYNC_FILE_RANGE_WRITE);
    data += n, at += n, bytes -= n;
  }
}

void DirectFile::sync_and_close() {
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) failed("syncing it to disk", errno);
  }
  if (::close(std::exchange(fd_, -1)) != 0) failed("closing it", errno);
}

}  // namespace rw
