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
  int close() { return ::close(std::exchange(fd_, -1)); }  // for errors that only show now

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

// The file that symbolic links lead to, which need not exist; `file` itself when it is no link.
std::filesystem::path behind_links(std::filesystem::path file) {
  constexpr int kMostLinks = 40;  // as Linux follows
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i) {
    // What the kernel alone can follow ("pipe:[5]" of /dev/stdout) is no path.
    const std::filesystem::path next = file.parent_path() / std::filesystem::read_symlink(file, error);
    if (error || (std::filesystem::exists(file, error) && !std::filesystem::exists(next, error))) break;
    file = next;
  }
  return file;
}

bool write_all(const Descriptor& fd, std::string_view content) {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t n = ::write(fd.get(), content.data() + done, content.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

[[noreturn]] void write_failed(const std::filesystem::path& file, const char* action, size_t bytes, int cause) {
  fail(ErrorKind::runtime, "{}: {} failed after a request of {} bytes: {}", file.string(), action, bytes,
       std::strerror(cause));
}

// A place that was badly chosen is its user's matter; no room or a failing disk is not.
[[noreturn]] void not_writable(const std::filesystem::path& file, int cause) {
  const bool full = cause == ENOSPC || cause == EDQUOT || cause == EIO || cause == EMFILE || cause == ENFILE;
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (cause == ENOENT)
    fail(ErrorKind::usage, "{}: cannot be written: there is no folder {}; make it first", file.string(), folder);
  fail(full ? ErrorKind::runtime : ErrorKind::usage, "{}: cannot be written: {}", file.string(), std::strerror(cause));
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
  const std::filesystem::path target = behind_links(file);
  struct stat status {};
  const bool exists = ::stat(target.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    fail(ErrorKind::usage, "{}: expected the name of a file to write, found a directory", file.string());
  if (exists && !S_ISREG(status.st_mode)) {
    // A device or a pipe takes bytes; a file renamed over it would take its place.
    Descriptor fd(::open(file.c_str(), O_WRONLY | O_CLOEXEC));
    if (fd.get() < 0) not_writable(file, errno);
    if (!write_all(fd, content) || fd.close() != 0) write_failed(file, "writing", content.size(), errno);
    return;
  }
  const std::filesystem::path temporary = target.string() + ".tmp" + std::to_string(::getpid());
  const auto give_up = [&](const char* action) {
    const int cause = errno;
    ::unlink(temporary.c_str());
    write_failed(file, action, content.size(), cause);
  };
  {
    const Descriptor fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (fd.get() < 0) not_writable(file, errno);
    if (!write_all(fd, content)) give_up("writing");
    if (::fsync(fd.get()) != 0) give_up("syncing");
  }
  if (::rename(temporary.c_str(), target.c_str()) != 0) give_up("renaming");
  fsync_path(target.has_parent_path() ? target.parent_path() : std::filesystem::path("."));
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
