#include "libcore/ckpt/commit.h"

#include <system_error>

#include "libcore/base/check.h"
#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/os_error.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

void make_directory(const fs::path& dir) {
  std::error_code error;
  fs::create_directory(dir, error);
  if (error) os_failed(dir, "creating the directory", error.value());
}

}  // namespace

fs::path unfinished_path(const fs::path& checkpoints_dir, int64_t step) {
  return checkpoints_dir / (step_name(step) + ".tmp");
}

fs::path prepare_step(const fs::path& checkpoints_dir, int64_t step) {
  std::error_code error;
  make_directories(checkpoints_dir, error);
  if (error) os_failed(checkpoints_dir, "creating the directory", error.value());
  remove_leftovers(checkpoints_dir);
  const fs::path tmp = unfinished_path(checkpoints_dir, step);
  make_directory(tmp);
  return tmp;
}

Manifest make_manifest(int64_t step, const std::string& identity, const std::string& state,
                       const std::vector<ShardRecord>& shards) {
  Manifest manifest = join_shards(shards);
  manifest.step = step;
  manifest.identity = identity;
  manifest.state = state;
  manifest.created = utc_timestamp();
  return manifest;
}

void commit_step(const fs::path& checkpoints_dir, const Manifest& manifest) {
  const fs::path tmp = unfinished_path(checkpoints_dir, manifest.step);
  write_file_atomic(tmp / kManifestName, manifest_text(manifest));
  fsync_path(tmp);
  publish_directory(tmp, checkpoints_dir / step_name(manifest.step));
}

void abandon_step(const fs::path& checkpoints_dir, int64_t step) {
  std::error_code ignored;
  fs::remove_all(unfinished_path(checkpoints_dir, step), ignored);
}

std::string attempt(const std::function<void()>& action) {
  try {
    action();
    return "";
  } catch (const CheckFailed&) {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace rw
