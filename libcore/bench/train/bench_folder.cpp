#include "libcore/bench/train/bench_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/comm/agree.h"

namespace rw {
namespace fs = std::filesystem;
namespace {

fs::path new_temporary_folder() {
  std::string pattern = (fs::temp_directory_path() / "dbench-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr)
    fail(ErrorKind::runtime, "{}: no folder can be made there: {}; TMPDIR names another place",
         fs::temp_directory_path().string(), std::strerror(errno));
  return pattern;
}

}  // namespace

BenchFolder::BenchFolder(const std::string& keep, Comm& world) : keeps_(!keep.empty()) {
  const std::vector<std::string> hosts = world.hosts();
  const auto me = static_cast<size_t>(world.rank());
  first_of_host_ = std::find(hosts.begin(), hosts.end(), hosts[me]) - hosts.begin() == world.rank();
  std::string chosen;
  agree(world, [&] {
    if (world.rank() != 0) return;
    if (keeps_ && fs::exists(keep) && !fs::is_empty(keep))
      fail(ErrorKind::usage, "--keep {}: expected a new or empty folder", keep);
    chosen = keeps_ ? fs::absolute(keep).string() : new_temporary_folder().string();
  });
  path_ = world.broadcast_text(chosen, 0);
  agree(world, [&] {
    if (!first_of_host_) return;
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) fail(ErrorKind::runtime, "{}: cannot be created: {}", path_.string(), error.message());
    if (!keeps_) sweeper_.emplace("rm -rf -- \"$1\"", std::vector{path_.string()});
  });
}

BenchFolder::~BenchFolder() {
  std::error_code ignored;
  if (first_of_host_ && !keeps_ && !path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace rw
