// Large writes past the page cache: whatever the alignment, and whatever the system makes of a write.
#include "libcore/base/direct_file.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/page_pool.h"
#include "tests/ckpt/scratch_dir.h"

using namespace rw;
namespace fs = std::filesystem;

namespace {
// What the system makes of this thread's writes; n: how many bytes are asked for. >= 0: it writes no more than so many;
// < 0: it fails with that error.
thread_local ssize_t (*fate)(size_t n) = nullptr;
thread_local int writes = 0;
}  // namespace

// Takes the C library's place in this program.
extern "C" ssize_t pwrite(int fd, const void* data, size_t n, off_t at) {
  ++writes;
  const ssize_t allowed = fate == nullptr ? static_cast<ssize_t>(n) : fate(n);
  if (allowed < 0) {
    errno = static_cast<int>(-allowed);
    return -1;
  }
  return ::syscall(SYS_pwrite64, fd, data, std::min(n, static_cast<size_t>(allowed)), at);
}

namespace {

// Writes random bytes in random parts and reads them back.
void check_write(const fs::path& path, FileCache cache, int64_t bytes, int64_t misaligned, unsigned seed) {
  PagePool pool;
  pool.need(bytes + misaligned);
  std::mt19937 random(seed);
  char* data = pool.data() + misaligned;
  for (int64_t i = 0; i < bytes; ++i) data[i] = static_cast<char>(random());
  {
    DirectFile file(path, cache);
    file.reserve(bytes);
    for (int64_t at = 0; at < bytes;) {
      int64_t n = std::min<int64_t>(bytes - at, 1 + static_cast<int64_t>(random() % 300'000));
      if (seed % 2 == 0 && n < bytes - at) n = std::min(bytes - at, (n + 4095) / 4096 * 4096);
      file.write(data + at, n, at);
      at += n;
    }
    file.sync_and_close();
  }
  const std::string found = read_file(path);
  REQUIRE(static_cast<int64_t>(found.size()) == bytes);
  CHECK(std::memcmp(found.data(), data, static_cast<size_t>(bytes)) == 0);
}

std::string error_of(const fs::path& path) {
  PagePool pool;
  pool.need(1 << 20);
  try {
    DirectFile file(path, FileCache::bypass);
    file.write(pool.data(), 1 << 20, 0);
    file.sync_and_close();
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::runtime);
    return e.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("what is written is what is read, aligned or not") {
  const ScratchDir dir;
  unsigned seed = 0;
  for (const FileCache cache : {FileCache::bypass, FileCache::keep}) {
    for (const int64_t bytes : {0, 1, 511, 4096, 4097, 1'000'003, 3 << 20}) {
      for (const int64_t misaligned : {0, 1, 512}) check_write(dir / "a", cache, bytes, misaligned, seed++);
    }
  }
}

TEST_CASE("writes that the system cuts short, interrupts or refuses to do directly") {
  const ScratchDir dir;
  using Fate = ssize_t (*)(size_t);
  const Fate fates[] = {
      [](size_t n) { return static_cast<ssize_t>(n / 2 / 4096 * 4096 + 4096); },             // cut at a page
      [](size_t n) { return static_cast<ssize_t>(n > 512 ? (n / 3 / 512 + 1) * 512 : n); },  // cut inside one
      [](size_t n) { return writes % 3 == 0 ? -ssize_t{EINTR} : static_cast<ssize_t>(n); },
      // No direct writing after the first.
      [](size_t n) { return writes > 1 && n >= 4096 && writes < 3 ? -ssize_t{EINVAL} : static_cast<ssize_t>(n); },
  };
  unsigned seed = 0;
  for (const Fate f : fates) {
    for (const int64_t bytes : {4096, 1'000'003, 3 << 20}) {
      writes = 0;
      fate = f;
      check_write(dir / "a", FileCache::bypass, bytes, 0, seed++);
      fate = nullptr;
      CHECK(writes > 0);
    }
  }
}

TEST_CASE("a failing write names file, bytes, offset and cause") {
  const ScratchDir dir;
  fate = [](size_t n) { return writes == 1 ? ssize_t{8192} : n == 0 ? ssize_t{0} : -ssize_t{EIO}; };
  writes = 0;
  std::string error = error_of(dir / "a");
  fate = nullptr;
  CHECK(error == (dir / "a").string() + ": writing 1040384 bytes at 8192 failed: Input/output error");
  fate = [](size_t) { return ssize_t{0}; };  // no bytes and no error: no endless loop
  error = error_of(dir / "a");
  fate = nullptr;
  CHECK(has(error, "writing 1048576 bytes at 0 failed"));

  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{600'000, before.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &small);
  error = error_of(dir / "a");
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  CHECK(has(error, " bytes at 600000 failed: File too large"));
  CHECK(error_of("/dev/full") == "/dev/full: writing 1048576 bytes at 0 failed: No space left on device");
  CHECK(has(error_of(dir / "missing/a"), "creating it failed: No such file or directory"));
  CHECK(error_of(dir / "a").empty());
}
