#include "libcore/bench/disk/raw_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <system_error>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/bench/record/statistics.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

class Descriptor {
 public:
  Descriptor(const fs::path& file, int flags) : fd_(::open(file.c_str(), flags | O_CLOEXEC, 0666)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

[[noreturn]] void failed(const fs::path& file, const char* action) {
  fail(ErrorKind::runtime, "{}: {}: {}", file.string(), action, std::generic_category().message(errno));
}

}  // namespace

RawBlock::RawBlock() {
  pool_.need(kBytes);
  uint64_t x = 0x9E3779B97F4A7C15;
  for (int64_t i = 0; i < kBytes; i += 8) {
    x ^= x << 13, x ^= x >> 7, x ^= x << 17;  // Marsaglia 2003
    std::memcpy(pool_.data() + i, &x, 8);
  }
}

void RawBlock::stamp(int64_t block) {
  for (int64_t at = 0; at < kBytes; at += DirectFile::kAlignBytes) {
    const int64_t name = block * kBytes + at;
    std::memcpy(pool_.data() + at, &name, sizeof name);
  }
}

double write_raw(const fs::path& file, int64_t bytes, FileCache cache, RawBlock& block) {
  const double start = now_s();
  DirectFile out(file, cache);
  out.reserve(bytes);
  for (int64_t at = 0; at < bytes; at += RawBlock::kBytes) {
    block.stamp(at / RawBlock::kBytes);
    out.write(block.data(), std::min(RawBlock::kBytes, bytes - at), at);
  }
  out.sync_and_close();
  return now_s() - start;
}

double read_raw(const fs::path& file, ReadWay way, RawBlock& block) {
  const double start = now_s();
  const Descriptor in(file, O_RDONLY | (way == ReadWay::direct ? O_DIRECT : 0));
  if (in.get() < 0) {
    if (way == ReadWay::direct && errno == EINVAL) return std::numeric_limits<double>::quiet_NaN();
    failed(file, "opening it");
  }
  for (;;) {
    const ssize_t n = ::read(in.get(), block.data(), static_cast<size_t>(RawBlock::kBytes));
    if (n == 0) break;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && way == ReadWay::direct && errno == EINVAL) return std::numeric_limits<double>::quiet_NaN();
    if (n < 0) failed(file, "reading it");
  }
  return now_s() - start;
}

double drop_from_cache(const fs::path& file) {
  const Descriptor fd(file, O_RDONLY);
  if (fd.get() < 0) failed(file, "opening it");
  if (::fsync(fd.get()) != 0) failed(file, "fsync");
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  const auto bytes = static_cast<size_t>(fs::file_size(file));
  if (bytes == 0) return 0;
  void* map = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (map == MAP_FAILED) failed(file, "mapping it");
  std::vector<unsigned char> pages((bytes + 4095) / 4096);
  const int error = ::mincore(map, bytes, pages.data());
  ::munmap(map, bytes);
  if (error != 0) failed(file, "asking for its pages");
  const auto there = std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1) != 0; });
  return static_cast<double>(there) / static_cast<double>(pages.size());
}

SmallFiles time_small_files(const fs::path& dir, int64_t n) {
  const std::vector<char> content(4096, 'x');
  std::vector<double> create, rename, remove;
  for (int64_t i = 0; i < n; ++i) {
    const fs::path before = dir / fmt::format("small-{}.tmp", i), after = dir / fmt::format("small-{}", i);
    double start = now_s();
    {
      const Descriptor out(before, O_WRONLY | O_CREAT | O_TRUNC);
      if (out.get() < 0) failed(before, "creating it");
      if (::write(out.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()))
        failed(before, "writing it");
      if (::fsync(out.get()) != 0) failed(before, "fsync");
    }
    create.push_back(now_s() - start);
    start = now_s();
    fs::rename(before, after);
    fsync_path(dir);
    rename.push_back(now_s() - start);
    start = now_s();
    fs::remove(after);
    remove.push_back(now_s() - start);
  }
  return {.create_s = quantile_of(create, 0.5),
          .create_p99_s = quantile_of(create, 0.99),
          .rename_s = quantile_of(rename, 0.5),
          .rename_p99_s = quantile_of(rename, 0.99),
          .remove_s = quantile_of(remove, 0.5)};
}

}  // namespace rw
