#include "libcore/data/spool.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "libcore/base/error.h"

namespace rw {
namespace {

constexpr int64_t kBufferBytes = 1 << 20;  // larger pieces made the page cache slower, not faster

[[noreturn]] void write_failed(const std::filesystem::path& target, int cause) {
  const char* advice = cause == ENOSPC || cause == EDQUOT
                           ? "; free some space or choose another folder (2x the file's size is needed)"
                           : "";
  fail(ErrorKind::runtime, "{}: cannot be written: {}{}", target.string(), std::strerror(cause), advice);
}

}  // namespace

void check_room(const std::filesystem::path& file, int64_t bytes, const std::filesystem::path& target) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) fail(ErrorKind::runtime, "{}: cannot be created: {}", target.string(), std::strerror(errno));
  const int cause = ::fallocate(fd, 0, 0, bytes) == 0 ? 0 : errno;
  ::close(fd);
  if (cause == ENOSPC || cause == EDQUOT || cause == EFBIG) write_failed(target, cause);
}

void write_all(int fd, const void* data, int64_t bytes, int64_t at, const std::filesystem::path& target) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t n = ::pwrite(fd, from, static_cast<size_t>(std::min(bytes, kBufferBytes)), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) write_failed(target, errno);
    from += n, at += n, bytes -= n;
  }
}

Spool::Spool(const std::filesystem::path& target) : target_(target) {
  std::string name = target.string() + ".spool-XXXXXX";
  fd_ = ::mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0)
    fail(ErrorKind::runtime, "{}: cannot create a file in its folder: {}", target.string(), std::strerror(errno));
  ::unlink(name.c_str());
  buffer_.reserve(kBufferBytes);
}

Spool::~Spool() {
  if (fd_ >= 0) ::close(fd_);
}

void Spool::append(const void* data, int64_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const int64_t n = std::min(bytes, kBufferBytes - static_cast<int64_t>(buffer_.size()));
    buffer_.insert(buffer_.end(), from, from + n);
    from += n, bytes -= n, size_ += n;
    if (static_cast<int64_t>(buffer_.size()) == kBufferBytes) write_buffer();
  }
}

void Spool::write_buffer() {
  write_all(fd_, buffer_.data(), static_cast<int64_t>(buffer_.size()), size_ - static_cast<int64_t>(buffer_.size()),
            target_);
  buffer_.clear();
}

void Spool::flush() { write_buffer(); }

void Spool::rewind() {
  if (::lseek(fd_, 0, SEEK_SET) != 0)
    fail(ErrorKind::runtime, "{}: its spool cannot be rewound: {}", target_.string(), std::strerror(errno));
}

void Spool::copy_to(int destination_fd, int64_t at) {
  flush();
  buffer_.resize(kBufferBytes);
  for (int64_t done = 0; done < size_;) {
    const ssize_t n = ::pread(fd_, buffer_.data(), buffer_.size(), done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      fail(ErrorKind::runtime, "{}: its spool cannot be read back: {}", target_.string(), std::strerror(errno));
    write_all(destination_fd, buffer_.data(), n, at + done, target_);
    done += n;
  }
  buffer_.clear();
}

}  // namespace rw
