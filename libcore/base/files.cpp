#include "libcore/base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "libcore/base/error.h"

namespace rw {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

int open_for_reading(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) fail(ErrorKind::input, "{}: cannot be opened for reading: {}", file.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(fd);
    fail(ErrorKind::input, "{}: expected a file, found a directory", file.string());
  }
  return fd;
}

int open_regular_file(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) fail(ErrorKind::input, "{}: cannot be opened for reading: {}", file.string(), std::strerror(errno));
  struct stat status {};
  if (::fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)) {
    ::close(fd);
    fail(ErrorKind::input, "{}: expected a file, found {}", file.string(),
         S_ISDIR(status.st_mode) ? "a directory" : "a pipe or a device");
  }
  return fd;
}

std::string read_all(const std::filesystem::path& file, const Descriptor& fd) {
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorKind::input, "{}: cannot be read: {}", file.string(), std::strerror(errno));
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& file) { return read_all(file, Descriptor(open_for_reading(file))); }

std::string read_regular_file(const std::filesystem::path& file) {
  return read_all(file, Descriptor(open_regular_file(file)));
}

void fsync_path(const std::filesystem::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0)
    fail(ErrorKind::runtime, "{}: cannot be opened to be synced: {}", path.string(), std::strerror(errno));
  // Some file systems refuse to sync a directory (EINVAL); there is nothing more one can do there.
  if (::fsync(fd.get()) != 0 && errno != EINVAL)
    fail(ErrorKind::runtime, "{}: cannot be synced: {}", path.string(), std::strerror(errno));
}

void make_directories(const std::filesystem::path& dir, std::error_code& error) {
  std::filesystem::path at = std::filesystem::absolute(dir).lexically_normal();
  if (!at.has_filename()) at = at.parent_path();
  std::vector<std::filesystem::path> parents;  // of what is missing
  for (; at.has_relative_path() && !std::filesystem::exists(at); at = at.parent_path())
    parents.push_back(at.parent_path());
  std::filesystem::create_directories(dir, error);
  if (error) return;
  for (const std::filesystem::path& parent : parents) fsync_path(parent);
}

void write_file_atomic(const std::filesystem::path& file, std::string_view content) {
  const std::filesystem::path temporary = file.string() + ".tmp" + std::to_string(::getpid());
  const auto give_up = [&](const char* action) {
    const int cause = errno;
    ::unlink(temporary.c_str());
    fail(ErrorKind::runtime, "{}: {} failed after a request of {} bytes: {}", file.string(), action, content.size(),
         std::strerror(cause));
  };
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd.get() < 0) give_up("creating");
    size_t done = 0;
    while (done < content.size()) {
      const ssize_t n = ::write(fd.get(), content.data() + done, content.size() - done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) give_up("writing");
      done += static_cast<size_t>(n);
    }
    if (::fsync(fd.get()) != 0) give_up("syncing");
  }
  if (::rename(temporary.c_str(), file.c_str()) != 0) give_up("renaming");
  fsync_path(file.has_parent_path() ? file.parent_path() : std::filesystem::path("."));
}

FileLock::FileLock(const std::filesystem::path& file, const std::string& busy)
    : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) fail(ErrorKind::runtime, "{}: cannot be opened for locking: {}", file.string(), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int cause = errno;
  ::close(std::exchange(fd_, -1));
  // A file system without locks is no reason not to train.
  if (cause == EWOULDBLOCK) fail(ErrorKind::usage, "{}", busy);
}
FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

MappedFile::MappedFile(const std::filesystem::path& file) {
  const Descriptor fd(open_regular_file(file));
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0)
    fail(ErrorKind::input, "{}: cannot be read: {}", file.string(), std::strerror(errno));
  size_ = status.st_size;
  if (size_ == 0) return;
  void* map = ::mmap(nullptr, static_cast<size_t>(size_), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED)
    fail(ErrorKind::input, "{}: cannot be mapped into memory: {}", file.string(), std::strerror(errno));
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), static_cast<size_t>(size_));
}

}  // namespace rw
