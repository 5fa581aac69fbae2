#include "libcore/bench/disk/scratch_dir.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"
#include "libcore/base/units.h"

namespace rw {
namespace {

// Waits for the end of standard input, then removes the folder.
constexpr const char* kSweep = "trap '' HUP INT TERM; cat >/dev/null; rm -rf -- \"$1\"";

pid_t spawn_sweeper(const std::string& dir, int read_end) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, read_end, STDIN_FILENO);
  // The launcher waits for the end of the job's output: the sweeper must not hold it open.
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  std::array<std::string, 5> words = {"sh", "-c", kSweep, "sh", dir};
  std::array<char*, 6> argv = {words[0].data(), words[1].data(), words[2].data(),
                               words[3].data(), words[4].data(), nullptr};
  pid_t child = -1;
  const int error = ::posix_spawn(&child, "/bin/sh", &files, &attributes, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) fail(ErrorKind::runtime, "starting /bin/sh: {}", std::generic_category().message(error));
  return child;
}

}  // namespace

ScratchDir::ScratchDir(const std::filesystem::path& parent) {
  std::string name = (parent / ".dbench.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail(ErrorKind::usage, "{}: expected a folder to write to: {}; name another with --dir", parent.string(),
         std::generic_category().message(errno));
  path_ = name;
  int ends[2] = {-1, -1};
  try {
    if (::pipe2(ends, O_CLOEXEC) != 0) fail(ErrorKind::runtime, "a pipe: {}", std::generic_category().message(errno));
    sweeper_ = spawn_sweeper(std::filesystem::absolute(path_).string(), ends[0]);
  } catch (...) {
    for (const int end : ends)
      if (end >= 0) ::close(end);
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    throw;
  }
  ::close(ends[0]);
  pipe_ = ends[1];
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  ::close(pipe_);
  while (::waitpid(sweeper_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool leaves_a_tenth(int64_t bytes, int64_t free_bytes, int64_t total_bytes) {
  return bytes <= free_bytes - total_bytes / 10;
}

void check_free_space(const std::filesystem::path& dir, int64_t bytes) {
  struct statvfs fs {};
  if (::statvfs(dir.c_str(), &fs) != 0)
    fail(ErrorKind::usage, "{}: {}; name a folder with --dir", dir.string(), std::generic_category().message(errno));
  const auto block = static_cast<int64_t>(fs.f_frsize);
  const int64_t free_bytes = static_cast<int64_t>(fs.f_bavail) * block,
                total = static_cast<int64_t>(fs.f_blocks) * block;
  if (!leaves_a_tenth(bytes, free_bytes, total))
    fail(ErrorKind::usage,
         "{}: {} are needed and {} are free of {}, of which a tenth stays free: ask for a smaller --size, or name "
         "another --dir",
         dir.string(), format_bytes(static_cast<double>(bytes)), format_bytes(static_cast<double>(free_bytes)),
         format_bytes(static_cast<double>(total)));
}

}  // namespace rw
