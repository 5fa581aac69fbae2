#include "libcore/ckpt/verify.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/workers.h"
#include "libcore/ckpt/file_digests.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

int64_t file_bytes(const fs::path& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

}  // namespace

Manifest read_manifest(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(dir, error)) {
    fail(ErrorKind::input, "{}: expected a checkpoint directory, found {}", dir.string(),
         fs::exists(dir, error) ? "a file" : "nothing");
  }
  const fs::path file = dir / kManifestName;
  if (!fs::exists(file, error)) {
    fail(ErrorKind::input, "{}: expected {}, found none: this is no committed checkpoint", dir.string(), kManifestName);
  }
  return parse_manifest(read_regular_file(file), file.string());
}

void check_files(const Manifest& manifest, const fs::path& dir) {
  for (const FileRecord& record : manifest.files) {
    const fs::path file = dir / record.name;
    std::error_code error;
    const fs::file_status status = fs::status(file, error);
    if (!fs::exists(status)) {
      fail(ErrorKind::input, "{}: listed in {} with {} bytes, found no such file", file.string(), kManifestName,
           record.bytes);
    }
    const auto size = fs::is_regular_file(status) ? static_cast<int64_t>(fs::file_size(file, error)) : int64_t{-1};
    if (size < 0 || error) {
      fail(ErrorKind::input, "{}: expected a file of {} bytes, found {}", file.string(), record.bytes,
           error ? error.message() : "something that is no file");
    }
    if (size != record.bytes) {
      fail(ErrorKind::input, "{}: expected {} bytes (key 'files' of {}), found {}: it was {}", file.string(),
           record.bytes, kManifestName, size, size < record.bytes ? "cut" : "extended");
    }
  }
}

void check_name(const Manifest& manifest, const fs::path& dir) {
  std::error_code error;
  const fs::path full = fs::absolute(dir, error).lexically_normal();
  const int64_t named = step_of_name((full.has_filename() ? full : full.parent_path()).stem().string());
  if (named >= 0 && named != manifest.step)
    fail(ErrorKind::input, "{}: expected a manifest of step {}, found step {}", dir.string(), named, manifest.step);
}

int64_t files_elsewhere(const Manifest& manifest, const fs::path& dir) {
  std::error_code error;
  const fs::path full = fs::absolute(dir, error).lexically_normal();
  const fs::path folder = (full.has_filename() ? full : full.parent_path()).parent_path();
  const Json identity = parse_json(manifest.identity, dir.string());
  const auto found = identity.find("run_id");
  const std::string run_id = found != identity.end() && found->is_string() ? found->get<std::string>() : "";
  if (run_id.empty() || folder.filename() != run_id) return 0;
  const auto absent = std::count_if(manifest.files.begin(), manifest.files.end(),
                                    [&](const FileRecord& record) { return !fs::exists(dir / record.name, error); });
  return absent == static_cast<int64_t>(manifest.files.size()) ? 0 : absent;
}

VerifiedCheckpoint verify_checkpoint(const fs::path& dir, const VerifyWatch& watch) {
  VerifiedCheckpoint report;
  report.dir = dir;
  if (watch.begin) watch.begin(dir);
  try {
    const Manifest manifest = read_manifest(dir);
    report.step = manifest.step;
    check_name(manifest, dir);
    report.n_files_elsewhere = files_elsewhere(manifest, dir);
    for (const TensorRecord& t : manifest.tensors)
      report.tensor_bytes += n_elements(t.info.shape) * dtype_bytes(t.info.dtype);
    std::vector<ExpectedFile> files = expected_files(manifest, dir);
    if (report.n_files_elsewhere > 0) std::erase_if(files, [](const ExpectedFile& f) { return !fs::exists(f.path); });
    report.bytes = file_bytes(dir / kManifestName);
    for (const ExpectedFile& file : files) report.bytes += file_bytes(file.path);
    report.faults = file_faults(files, reading_threads(), watch.progress);
  } catch (const Error& e) {
    report.faults.push_back(e.what());
  }
  return report;
}

std::vector<VerifiedCheckpoint> verify_checkpoints(const fs::path& checkpoints_dir, const VerifyWatch& watch,
                                                   std::vector<fs::path>* unfinished) {
  std::vector<VerifiedCheckpoint> reports;
  for (const auto& [step, dir] : step_directories(checkpoints_dir, unfinished)) {
    VerifiedCheckpoint report = verify_checkpoint(dir, watch);
    if (!report.faults.empty() && !fs::exists(dir)) continue;  // pruned meanwhile
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace rw
