#include "libcore/ckpt/step_dirs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
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
  if (name.size() < 8 || error != std::errc() || end != name.data() + name.size()) return -1;
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
  if (error) fail(ErrorKind::runtime, "{}: removing it failed: {}", dir.string(), error.message());
}

void rename_or_fail(const fs::path& from, const fs::path& to) {
  std::error_code error;
  fs::rename(from, to, error);
  if (error) {
    fail(ErrorKind::runtime, "{}: renaming it to {} failed: {}", from.string(), to.filename().string(),
         error.message());
  }
}

}  // namespace

std::string step_name(int64_t step) { return fmt::format("step-{:08}", step); }

fs::path replaced_path(const fs::path& dir) { return dir.string() + std::string(kReplaced); }

void remove_leftovers(const fs::path& checkpoints_dir) {
  for (const fs::path& path : entries(checkpoints_dir)) {
    const std::string name = path.filename().string();
    if (step_of(name, kTmp) >= 0) remove_directory(path);
    const int64_t replaced = step_of(name, kReplaced);
    if (replaced < 0) continue;
    const fs::path successor = checkpoints_dir / step_name(replaced);
    if (fs::exists(successor)) remove_directory(path);
    else rename_or_fail(path, successor);
  }
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
      if (ignored != nullptr) ignored->push_back(e.what());
    }
  }
  for (const fs::path& dir : unfinished) {
    if (ignored != nullptr) ignored->push_back(dir.string() + ": a save that did not finish");
  }
  return list;
}

void prune_checkpoints(const fs::path& checkpoints_dir, int64_t keep_last, int64_t keep_every) {
  if (keep_last <= 0) return;
  const std::vector<CheckpointEntry> list = list_checkpoints(checkpoints_dir);
  for (size_t i = 0; i + static_cast<size_t>(keep_last) < list.size(); ++i) {
    if (keep_every > 0 && list[i].step % keep_every == 0) continue;
    // Under a name that is never read, so that a crash half way leaves no directory that looks committed.
    const fs::path doomed = checkpoints_dir / (step_name(list[i].step) + std::string(kTmp));
    remove_directory(doomed);
    rename_or_fail(list[i].dir, doomed);
    fsync_path(checkpoints_dir);
    remove_directory(doomed);
  }
}

}  // namespace rw
