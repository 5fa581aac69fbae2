// Loaded with LD_PRELOAD: makes file operations fail, lie, crawl or kill, and writes them down (fault_plan.h says how
// to ask for it). Every wrapper works out which path is meant, asks the plan, and passes the call on to the C library.
//
// Writes through a shared mapping cannot be seen as they happen. A file that was mapped for writing is recorded whole
// when it is synced, just before the sync: what was stored in it counts as written, and as durable, from there on.
#undef _FILE_OFFSET_BITS  // open and open64, both to be defined here, would be one name
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "tests/faults/fault_plan.h"

namespace {

using faults::Action;
using faults::FaultPlan;
using faults::Op;
using faults::Operation;

template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}
// The C library's own version of a function, looked up once.
#define REAL(name)                                        \
  ([] {                                                   \
    static auto* const f = real<decltype(::name)>(#name); \
    return f;                                             \
  }())

// Never destroyed: other threads may still write while the process ends.
FaultPlan& plan() {
  static FaultPlan* const plan = new FaultPlan;
  return *plan;
}

std::string link_target(const std::string& link) {
  char text[4096];
  const ssize_t n = ::readlink(link.c_str(), text, sizeof text);
  return std::string(text, n < 0 ? 0 : static_cast<size_t>(n));
}
// Where the file lies now, whatever its name was when it was opened.
std::string path_of(int fd) { return fd < 0 ? "" : link_target("/proc/self/fd/" + std::to_string(fd)); }

std::string path_at(int dir, const char* path) {
  std::filesystem::path full = path;
  if (full.is_relative()) full = (dir == AT_FDCWD ? link_target("/proc/self/cwd") : path_of(dir)) / full;
  std::string text = full.lexically_normal().string();
  while (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

struct Inode {
  dev_t device;
  ino_t number;
  auto operator<=>(const Inode&) const = default;
};

// The order of operations over all processes: each is done and written down under one lock.
class Recorder {
 public:
  Recorder() {
    if (!plan().record_file().empty())
      fd_ = REAL(open64)(plan().record_file().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  }
  bool on() const { return fd_ >= 0; }

  class Turn {
   public:
    explicit Turn(Recorder& recorder) : recorder_(recorder) {
      if (!recorder_.on()) return;
      recorder_.mutex_.lock();
      while (::flock(recorder_.fd_, LOCK_EX) != 0 && errno == EINTR) {
      }
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (!recorder_.on()) return;
      const int keep = errno;
      ::flock(recorder_.fd_, LOCK_UN);
      recorder_.mutex_.unlock();
      errno = keep;
    }
    void add(const Operation& o) {
      if (!recorder_.on()) return;
      const int keep = errno;
      const std::string bytes = faults::to_bytes(o);
      if (REAL(write)(recorder_.fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        FaultPlan::die();  // a record with a hole would prove nothing
      errno = keep;
    }

   private:
    Recorder& recorder_;
  };

  void mapped(int fd) {
    struct stat64 s {};
    const std::lock_guard lock(mutex_);
    if (on() && ::fstat64(fd, &s) == 0) mapped_.insert({s.st_dev, s.st_ino});
  }
  // Within a turn.
  bool is_mapped(const struct stat64& s) const { return mapped_.contains({s.st_dev, s.st_ino}); }

 private:
  int fd_ = -1;
  std::mutex mutex_;
  std::set<Inode> mapped_;  // for writing, at some time
};
Recorder& recorder() {
  static Recorder* const recorder = new Recorder;
  return *recorder;
}

// Sets errno when the operation is to fail.
bool refused(Action action) {
  if (action != Action::eio && action != Action::enospc) return false;
  errno = action == Action::eio ? EIO : ENOSPC;
  return true;
}

// An operation on one path (or two) that is all or nothing: returns what `call` does, or -1.
template <typename Call>
int simple(Operation o, Call call) {
  const bool watched = plan().watches(o.path) || plan().watches(o.to);
  if (!watched) return call();
  if (refused(plan().next(o.op, o.path, 0))) return -1;
  Recorder::Turn turn(recorder());
  const int result = call();
  if (result >= 0) turn.add(o);
  return result;
}

std::string content(const std::string& path) {
  std::string bytes;
  const int fd = REAL(open64)(path.c_str(), O_RDONLY | O_CLOEXEC);
  char part[65536];
  for (ssize_t n = 0; fd >= 0 && (n = ::read(fd, part, sizeof part)) > 0;) bytes.append(part, static_cast<size_t>(n));
  if (fd >= 0) REAL(close)(fd);
  return bytes;
}

template <typename Call>
int open_file(int dir, const char* name, int flags, Call call) {
  const std::string path = path_at(dir, name);
  if (!plan().watches(path)) return call();
  if (refused(plan().next(Op::open, path, 0))) return -1;
  Recorder::Turn turn(recorder());
  struct stat64 before {};
  const bool existed = ::stat64(path.c_str(), &before) == 0;
  const int fd = call();
  if (fd >= 0 && !existed && (flags & O_CREAT) != 0) turn.add({Op::create, path, "", 0, ""});
  if (fd >= 0 && existed && (flags & O_TRUNC) != 0 && before.st_size > 0) turn.add({Op::resize, path, "", 0, ""});
  return fd;
}

void add_sync(Recorder::Turn& turn, const std::string& path) {
  struct stat64 s {};
  if (!recorder().on()) return;
  if (::stat64(path.c_str(), &s) == 0 && S_ISREG(s.st_mode) && recorder().is_mapped(s))
    turn.add({Op::write, path, "", 0, content(path)});
  turn.add({Op::sync, path, "", 0, ""});
}

template <typename Call>
int sync_file(const std::string& path, Call call) {
  if (!plan().watches(path)) return call();
  if (refused(plan().next(Op::sync, path, 0))) return -1;
  Recorder::Turn turn(recorder());
  const int result = call();
  if (result == 0) add_sync(turn, path);
  return result;
}

constexpr size_t kSector = 4096;

// `at` < 0: at the file's position, or at its end with O_APPEND. `call` writes (data, bytes).
template <typename Call>
ssize_t write_file(int fd, const char* data, size_t bytes, int64_t at, Call call) {
  const std::string path = path_of(fd);
  if (!plan().watches(path)) return call(data, bytes);
  const Action action = plan().next(Op::write, path, static_cast<int64_t>(bytes));
  if (refused(action)) return -1;
  const int flags = ::fcntl(fd, F_GETFL);
  if (action == Action::short_write || action == Action::kill_half) {
    // Direct I/O takes whole sectors only.
    const size_t half = (flags & O_DIRECT) != 0 ? bytes / 2 / kSector * kSector : bytes / 2;
    if (half > 0) bytes = half;
  }
  std::unique_ptr<char, decltype(&std::free)> changed(nullptr, &std::free);
  if (action == Action::flip) {
    changed.reset(static_cast<char*>(std::aligned_alloc(kSector, (bytes + kSector - 1) / kSector * kSector)));
    std::memcpy(changed.get(), data, bytes);
    char& hit = changed.get()[static_cast<size_t>(plan().bit()) / 8 % bytes];
    hit = static_cast<char>(hit ^ (1 << plan().bit() % 8));
    data = changed.get();
  }
  Recorder::Turn turn(recorder());
  if (at < 0 && recorder().on()) {
    struct stat64 s {};
    at = (flags & O_APPEND) != 0 && ::fstat64(fd, &s) == 0 ? s.st_size : ::lseek64(fd, 0, SEEK_CUR);
  }
  const ssize_t n = call(data, bytes);
  if (action == Action::kill_half) FaultPlan::die();
  if (n > 0) turn.add({Op::write, path, "", at, recorder().on() ? std::string(data, static_cast<size_t>(n)) : ""});
  if (n > 0 && (flags & O_DSYNC) != 0) add_sync(turn, path);
  return n;
}

// A vector of buffers as one: what the kernel makes of it is the same.
template <typename Call>
ssize_t write_vector(int fd, const iovec* parts, int n_parts, int64_t at, Call one) {
  std::string all;
  for (int i = 0; i < n_parts; ++i) all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
  return write_file(fd, all.data(), all.size(), at, one);
}

// Data that never pass through the caller's memory: they are looked up in the target afterwards.
template <typename Call>
ssize_t copy_between(int out, int64_t at, size_t bytes, Call call) {
  const std::string path = path_of(out);
  if (!plan().watches(path)) return call();
  if (refused(plan().next(Op::write, path, static_cast<int64_t>(bytes)))) return -1;
  Recorder::Turn turn(recorder());
  if (at < 0) at = ::lseek64(out, 0, SEEK_CUR);
  const ssize_t n = call();
  if (n > 0 && recorder().on())
    turn.add({Op::write, path, "", at, content(path).substr(static_cast<size_t>(at), static_cast<size_t>(n))});
  return n;
}

int resize_file(const std::string& path, int64_t bytes, const std::function<int()>& call) {
  return simple({Op::resize, path, "", bytes, ""}, call);
}

mode_t mode_of(int flags, va_list args) { return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0; }

}  // namespace

extern "C" {

#define OPEN(name)                                                                          \
  int name(const char* path, int flags, ...) {                                              \
    va_list args;                                                                           \
    va_start(args, flags);                                                                  \
    const mode_t mode = mode_of(flags, args);                                               \
    va_end(args);                                                                           \
    return open_file(AT_FDCWD, path, flags, [&] { return REAL(name)(path, flags, mode); }); \
  }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                        \
  int name(int dir, const char* path, int flags, ...) {                                     \
    va_list args;                                                                           \
    va_start(args, flags);                                                                  \
    const mode_t mode = mode_of(flags, args);                                               \
    va_end(args);                                                                           \
    return open_file(dir, path, flags, [&] { return REAL(name)(dir, path, flags, mode); }); \
  }
OPENAT(openat)
OPENAT(openat64)

int creat(const char* path, mode_t mode) { return ::open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char* path, mode_t mode) { return ::open64(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

#define FOPEN(name)                                                                                        \
  FILE* name(const char* path, const char* mode) {                                                         \
    FILE* file = nullptr;                                                                                  \
    const int flags = *mode == 'w' ? O_CREAT | O_TRUNC : *mode == 'a' ? O_CREAT : 0;                       \
    open_file(AT_FDCWD, path, flags, [&] { return (file = REAL(name)(path, mode)) == nullptr ? -1 : 0; }); \
    return file;                                                                                           \
  }
FOPEN(fopen)
FOPEN(fopen64)

ssize_t write(int fd, const void* data, size_t bytes) {
  return write_file(fd, static_cast<const char*>(data), bytes, -1,
                    [&](const char* d, size_t n) { return REAL(write)(fd, d, n); });
}
#define PWRITE(name)                                                                      \
  ssize_t name(int fd, const void* data, size_t bytes, off_t at) {                        \
    return write_file(fd, static_cast<const char*>(data), bytes, at,                      \
                      [&](const char* d, size_t n) { return REAL(name)(fd, d, n, at); }); \
  }
PWRITE(pwrite)
PWRITE(pwrite64)
ssize_t writev(int fd, const iovec* parts, int n_parts) {
  if (!plan().watches(path_of(fd))) return REAL(writev)(fd, parts, n_parts);
  return write_vector(fd, parts, n_parts, -1, [&](const char* d, size_t n) { return REAL(write)(fd, d, n); });
}
#define PWRITEV(name)                                                                                                 \
  ssize_t name(int fd, const iovec* parts, int n_parts, off_t at) {                                                   \
    if (!plan().watches(path_of(fd))) return REAL(name)(fd, parts, n_parts, at);                                      \
    return write_vector(fd, parts, n_parts, at, [&](const char* d, size_t n) { return REAL(pwrite)(fd, d, n, at); }); \
  }
PWRITEV(pwritev)
PWRITEV(pwritev64)

#define SENDFILE(name)                                                                   \
  ssize_t name(int out, int in, off_t* at, size_t bytes) noexcept {                      \
    return copy_between(out, -1, bytes, [&] { return REAL(name)(out, in, at, bytes); }); \
  }
SENDFILE(sendfile)
SENDFILE(sendfile64)
ssize_t copy_file_range(int in, off64_t* from, int out, off64_t* to, size_t bytes, unsigned flags) {
  return copy_between(out, to == nullptr ? -1 : *to, bytes,
                      [&] { return REAL(copy_file_range)(in, from, out, to, bytes, flags); });
}

#define FTRUNCATE(name)                                                            \
  int name(int fd, off_t bytes) noexcept {                                         \
    return resize_file(path_of(fd), bytes, [&] { return REAL(name)(fd, bytes); }); \
  }
FTRUNCATE(ftruncate)
FTRUNCATE(ftruncate64)
#define TRUNCATE(name)                                                                           \
  int name(const char* path, off_t bytes) noexcept {                                             \
    return resize_file(path_at(AT_FDCWD, path), bytes, [&] { return REAL(name)(path, bytes); }); \
  }
TRUNCATE(truncate)
TRUNCATE(truncate64)
// Blocks of a hole or behind the end are zeros already: only a growing file is news.
#define FALLOCATE(name)                                                                                              \
  int name(int fd, int mode, off_t at, off_t bytes) {                                                                \
    if (mode != 0) return REAL(name)(fd, mode, at, bytes);                                                           \
    return simple({Op::allocate, path_of(fd), "", at + bytes, ""}, [&] { return REAL(name)(fd, mode, at, bytes); }); \
  }
FALLOCATE(fallocate)
FALLOCATE(fallocate64)
#define POSIX_FALLOCATE(name)                                                                     \
  int name(int fd, off_t at, off_t bytes) {                                                       \
    int error = 0;                                                                                \
    const int result = simple({Op::allocate, path_of(fd), "", at + bytes, ""},                    \
                              [&] { return (error = REAL(name)(fd, at, bytes)) == 0 ? 0 : -1; }); \
    return result == 0 ? 0 : error != 0 ? error : errno;                                          \
  }
POSIX_FALLOCATE(posix_fallocate)
POSIX_FALLOCATE(posix_fallocate64)

int fsync(int fd) {
  return sync_file(path_of(fd), [&] { return REAL(fsync)(fd); });
}
int fdatasync(int fd) {
  return sync_file(path_of(fd), [&] { return REAL(fdatasync)(fd); });
}
// No promise about size, metadata or the disk's cache: it may fail, but is not a sync.
#define SYNC_FILE_RANGE(name)                                                       \
  int name(int fd, off_t at, off_t bytes, unsigned flags) {                         \
    const std::string path = path_of(fd);                                           \
    if (plan().watches(path) && refused(plan().next(Op::sync, path, 0))) return -1; \
    return REAL(name)(fd, at, bytes, flags);                                        \
  }
SYNC_FILE_RANGE(sync_file_range)

void* mmap64(void* wish, size_t bytes, int access, int flags, int fd, off64_t at) noexcept {
  void* map = REAL(mmap64)(wish, bytes, access, flags, fd, at);
  if (map != MAP_FAILED && fd >= 0 && (access & PROT_WRITE) != 0 && (flags & MAP_SHARED) != 0) recorder().mapped(fd);
  return map;
}
void* mmap(void* wish, size_t bytes, int access, int flags, int fd, off_t at) noexcept {
  return ::mmap64(wish, bytes, access, flags, fd, at);
}

int rename(const char* from, const char* to) noexcept {
  return simple({Op::rename, path_at(AT_FDCWD, from), path_at(AT_FDCWD, to), 0, ""},
                [&] { return REAL(rename)(from, to); });
}
int renameat(int from_dir, const char* from, int to_dir, const char* to) noexcept {
  return simple({Op::rename, path_at(from_dir, from), path_at(to_dir, to), 0, ""},
                [&] { return REAL(renameat)(from_dir, from, to_dir, to); });
}
int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  return simple(
      {(flags & RENAME_EXCHANGE) != 0 ? Op::exchange : Op::rename, path_at(from_dir, from), path_at(to_dir, to), 0, ""},
      [&] { return REAL(renameat2)(from_dir, from, to_dir, to, flags); });
}
int mkdir(const char* path, mode_t mode) noexcept {
  return simple({Op::mkdir, path_at(AT_FDCWD, path), "", 0, ""}, [&] { return REAL(mkdir)(path, mode); });
}
int mkdirat(int dir, const char* path, mode_t mode) noexcept {
  return simple({Op::mkdir, path_at(dir, path), "", 0, ""}, [&] { return REAL(mkdirat)(dir, path, mode); });
}
int unlink(const char* path) noexcept {
  return simple({Op::unlink, path_at(AT_FDCWD, path), "", 0, ""}, [&] { return REAL(unlink)(path); });
}
int unlinkat(int dir, const char* path, int flags) noexcept {
  return simple({(flags & AT_REMOVEDIR) != 0 ? Op::rmdir : Op::unlink, path_at(dir, path), "", 0, ""},
                [&] { return REAL(unlinkat)(dir, path, flags); });
}
int rmdir(const char* path) noexcept {
  return simple({Op::rmdir, path_at(AT_FDCWD, path), "", 0, ""}, [&] { return REAL(rmdir)(path); });
}
int remove(const char* path) noexcept {
  struct stat64 s {};
  const bool directory = ::lstat64(path, &s) == 0 && S_ISDIR(s.st_mode);
  return directory ? ::rmdir(path) : ::unlink(path);
}
int link(const char* from, const char* to) noexcept {
  return simple({Op::link, path_at(AT_FDCWD, from), path_at(AT_FDCWD, to), 0, ""},
                [&] { return REAL(link)(from, to); });
}
int close(int fd) {
  const std::string path = path_of(fd);
  if (!plan().watches(path)) return REAL(close)(fd);
  const Action action = plan().next(Op::close, path, 0);
  const int result = REAL(close)(fd);  // also when it is to fail: Linux frees the descriptor then, too
  return refused(action) ? -1 : result;
}

}  // extern "C"

// A mapping's file is not known from its address: /proc says it.
extern "C" int msync(void* at, size_t bytes, int flags) {
  if ((flags & MS_SYNC) == 0 || !recorder().on()) return REAL(msync)(at, bytes, flags);
  std::string path;
  if (FILE* maps = REAL(fopen64)("/proc/self/maps", "re")) {
    char line[4400];
    while (path.empty() && ::fgets(line, sizeof line, maps) != nullptr) {
      unsigned long begin = 0, end = 0;
      int name = 0;
      if (::sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &begin, &end, &name) < 2) continue;
      const auto address = reinterpret_cast<unsigned long>(at);
      if (begin <= address && address < end && name > 0) path = std::string(line + name);
    }
    ::fclose(maps);
  }
  while (path.ends_with('\n')) path.pop_back();
  return sync_file(path, [&] { return REAL(msync)(at, bytes, flags); });
}
