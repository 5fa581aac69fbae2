#include "libcore/bench/disk/scratch_dir.h"

#include <sys/statvfs.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/os_error.h"
#include "libcore/base/units.h"

namespace rw {
ScratchDir::ScratchDir(const std::filesystem::path& parent) {
  std::string name = (parent / ".dbench.XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail(ErrorKind::usage, "{}: expected a folder to write to: {}; name another with --dir", parent.string(),
         std::generic_category().message(errno));
  path_ = name;
  try {
    sweeper_.emplace("rm -rf -- \"$1\"", std::vector{std::filesystem::absolute(path_).string()});
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
    throw;
  }
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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
