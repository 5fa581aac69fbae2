#include "libcore/ckpt/step_dirs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/os_error.h"
#include "libcore/ckpt/checkpoint.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kReplaced = ".replaced";
constexpr std::string_view kTmp = ".tmp";

// "step-00000100SUFFIX" -> 100; -1 for any other name.
int64_t step_of(std::string_view name, std::string_view suffix) {
  if (!name.starts_with("step-") || !name.ends_with(suffix)) return -1;
  name = name.substr(5, name.size() - 5 - suffix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.size() < 8 || error != std::errc() || end != name.data() + name.size() || step < 0) return -1;
  return step;
}

std::vector<fs::path> entries(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    found.push_back(it->path());
  if (error && error != std::errc::no_such_file_or_directory) {
    fail(ErrorKind::input, "{}: cannot be listed: {}", dir.string(), error.message());
  }
  std::sort(found.begin(), found.end());
  return found;
}

void remove_directory(const fs::path& dir) {
  std::error_code error;
  fs::remove_all(dir, error);
  // Another process may be removing the same.
  if (error && error != std::errc::no_such_file_or_directory)
    fail(ErrorKind::runtime, "{}: removing it failed: {}", dir.string(), error.message());
}

[[noreturn]] void rename_failed(const fs::path& from, const fs::path& to, int error) {
  os_failed(from, "renaming it to " + to.filename().string(), error);
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) rename_failed(from, to, errno);
}

fs::path parent_of(const fs::path& dir) { return dir.has_parent_path() ? dir.parent_path() : fs::path("."); }

}  // namespace

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

int64_t step_of_name(std::string_view name) { return step_of(name, ""); }

fs::path tmp_path(const fs::path& dir) { return dir.string() + std::string(kTmp); }

fs::path replaced_path(const fs::path& dir) { return dir.string() + std::string(kReplaced); }

fs::path damaged_path(const fs::path& dir) {
  // The stem: it may be a step-N.replaced.
  return parent_of(dir) / (dir.stem().string() + std::string(kDamaged));
}

std::vector<fs::path> leftovers(const fs::path& checkpoints_dir) {
  std::vector<fs::path> found;
  for (const fs::path& path : entries(checkpoints_dir)) {
    const std::string name = path.filename().string();
    const int64_t replaced = step_of(name, kReplaced);
    if (step_of(name, kTmp) >= 0 || (replaced >= 0 && fs::exists(checkpoints_dir / step_name(replaced))))
      found.push_back(path);
  }
  return found;
}

void remove_leftovers(const fs::path& checkpoints_dir) {
  for (const fs::path& path : leftovers(checkpoints_dir)) remove_directory(path);
  for (const fs::path& path : entries(checkpoints_dir)) {
    const int64_t replaced = step_of(path.filename().string(), kReplaced);
    if (replaced >= 0) rename_or_fail(path, checkpoints_dir / step_name(replaced));
  }
}

void publish_directory(const fs::path& tmp, const fs::path& final) {
  std::error_code ignored;
  const fs::path parent = parent_of(final);
  if (!fs::exists(final)) {
    rename_or_fail(tmp, final);
  } else if (::renameat2(AT_FDCWD, tmp.c_str(), AT_FDCWD, final.c_str(), RENAME_EXCHANGE) == 0) {
    fsync_path(parent);
    fs::remove_all(tmp, ignored);
  } else if (errno != EINVAL && errno != ENOSYS) {
    rename_failed(tmp, final, errno);
  } else {
    const fs::path aside = replaced_path(final);
    rename_or_fail(final, aside);
    rename_or_fail(tmp, final);
    fsync_path(parent);
    fs::remove_all(aside, ignored);
  }
  fsync_path(parent);
}

void remove_step(const fs::path& dir) {
  const fs::path parent = parent_of(dir);
  const fs::path doomed = parent / tmp_path(dir.stem());  // the stem: it may be a step-N.replaced
  remove_directory(doomed);
  if (::rename(dir.c_str(), doomed.c_str()) != 0) {
    if (errno == ENOENT) return;
    rename_failed(dir, doomed, errno);
  }
  fsync_path(parent);
  remove_directory(doomed);
}

void set_aside_damaged(const fs::path& step_dir) {
  const fs::path aside = damaged_path(step_dir);
  std::error_code error;
  if (!fs::exists(step_dir, error)) return;
  remove_directory(aside);
  if (::rename(step_dir.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    rename_failed(step_dir, aside, errno);
  }
  fsync_path(aside.parent_path());
}

std::map<int64_t, fs::path> damaged_directories(const fs::path& checkpoints_dir) {
  std::map<int64_t, fs::path> found;
  for (const fs::path& path : entries(checkpoints_dir)) {
    const int64_t step = step_of(path.filename().string(), kDamaged);
    if (step >= 0) found[step] = path;
  }
  return found;
}

int64_t directory_bytes(const fs::path& dir) {
  int64_t bytes = 0;
  std::error_code error, ignored;
  for (fs::recursive_directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    const auto size = it->is_regular_file(ignored) ? it->file_size(ignored) : 0;
    if (!ignored) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::map<int64_t, fs::path> step_directories(const fs::path& checkpoints_dir, std::vector<fs::path>* unfinished) {
  std::map<int64_t, fs::path> found;
  for (const fs::path& path : entries(checkpoints_dir)) {
    const std::string name = path.filename().string();
    const int64_t step = step_of(name, ""), replaced = step_of(name, kReplaced);
    if (step >= 0) found[step] = path;
    if (replaced >= 0 && !fs::exists(checkpoints_dir / step_name(replaced))) found[replaced] = path;
    if (step_of(name, kTmp) >= 0 && unfinished != nullptr) unfinished->push_back(path);
  }
  return found;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& checkpoints_dir, std::vector<std::string>* ignored) {
  std::vector<CheckpointEntry> list;
  std::vector<fs::path> unfinished;
  for (const auto& [step, dir] : step_directories(checkpoints_dir, &unfinished)) {
    try {
      const int64_t found = Checkpoint(dir).step();
      if (found != step) fail(ErrorKind::input, "{}: its manifest is of step {}", dir.string(), found);
      list.push_back({step, dir});
    } catch (const Error& e) {
      // What is gone was pruned meanwhile.
      if (ignored != nullptr && fs::exists(dir)) ignored->push_back(e.what());
    }
  }
  for (const fs::path& dir : unfinished) {
    if (ignored != nullptr) ignored->push_back(dir.string() + ": a save that did not finish");
  }
  return list;
}

}  // namespace rw
