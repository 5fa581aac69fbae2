#include "libcore/formats/hf_stage.h"

#include <fcntl.h>
#include <stdio.h>

#include <cerrno>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/os_error.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// "out/" and "." name a directory as well, but no name that something can be put beside.
fs::path plain(const fs::path& path) {
  const fs::path full = fs::absolute(path).lexically_normal();
  return full.has_filename() ? full : full.parent_path();
}

}  // namespace

StagedDirectory::StagedDirectory(const fs::path& target, bool replace,
                                 const std::function<bool(const std::string& name)>& is_ours)
    : target_(plain(target)), staged_(target_.string() + ".unfinished") {
  std::error_code error;
  if (fs::exists(target_, error)) {
    if (!fs::is_directory(target_, error))
      fail(ErrorKind::usage, "{}: expected a directory to write, found a file", target.string());
    if (!replace && !fs::is_empty(target_, error))
      fail(ErrorKind::usage, "{}: expected an empty or new directory, found files in it: choose another, or --force",
           target.string());
    for (const fs::directory_entry& entry : fs::directory_iterator(target_)) {
      const std::string name = entry.path().filename().string();
      if (!is_ours(name) || entry.is_directory())
        fail(ErrorKind::usage,
             "{}: --force replaces an exported directory, but {} in it is not of an export and would be lost: move it, "
             "or choose another directory",
             target.string(), name);
    }
  }
  fs::remove_all(staged_, error);  // of an export that was interrupted
  if (!error) fs::create_directories(staged_, error);
  if (error) os_failed(staged_, "creating the directory", error.value());
}

StagedDirectory::~StagedDirectory() {
  std::error_code ignored;
  if (!staged_.empty()) fs::remove_all(staged_, ignored);
}

void StagedDirectory::publish() {
  fsync_path(staged_);
  std::error_code ignored;
  if (!fs::exists(target_, ignored)) {
    if (::rename(staged_.c_str(), target_.c_str()) != 0) os_failed(staged_, "giving it its name", errno);
    staged_.clear();
  } else if (::renameat2(AT_FDCWD, staged_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    // File systems without exchange: the old one steps aside for a moment, under a name that says what it is.
    if (errno != EINVAL && errno != ENOSYS) os_failed(staged_, "exchanging it with the old one", errno);
    const fs::path aside = target_.string() + ".replaced";
    if (::rename(target_.c_str(), aside.c_str()) != 0) os_failed(target_, "moving it aside", errno);
    if (::rename(staged_.c_str(), target_.c_str()) != 0) {
      const int error = errno;
      ::rename(aside.c_str(), target_.c_str());
      os_failed(staged_, "giving it its name", error);
    }
    staged_ = aside;
  }
  fsync_path(target_.parent_path());
}

}  // namespace rw
