#include "libcore/train/run_dir.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/hash.h"
#include "libcore/ckpt/model_source.h"

namespace rw {
namespace fs = std::filesystem;

fs::path checkpoints_dir(const TrainSpec& spec) { return fs::path(spec.out) / "checkpoints"; }

namespace {

// A path to a checkpoint, or to a run or a checkpoints folder whose newest is meant.
fs::path checkpoint_at(const fs::path& path, std::vector<std::string>& notes) {
  if (fs::exists(path / "manifest.json")) return path;
  const fs::path folder = fs::exists(path / "checkpoints") ? path / "checkpoints" : path;
  std::vector<std::string> ignored;
  const auto entries = list_checkpoints(folder, &ignored);
  for (const std::string& reason : ignored) notes.push_back("ignored " + reason);
  if (entries.empty())
    fail(ErrorKind::usage,
         "--resume {}: expected a checkpoint (a folder with manifest.json) or a run that holds one, found neither",
         path.string());
  return entries.back().dir;
}

// Whether a folder that was once committed (step-N, not step-N.tmp) is there, in whatever state.
bool holds_committed(const fs::path& dir) {
  if (!fs::is_directory(dir)) return false;
  for (const auto& entry : fs::directory_iterator(dir))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("step-") && name.find('.') == std::string::npos)
      return true;
  return false;
}

}  // namespace

ResumePlan plan_resume(const TrainSpec& spec) {
  ResumePlan plan;
  const bool used = fs::exists(fs::path(spec.out) / "run.json");
  if (fs::exists(spec.out) && !fs::is_directory(spec.out))
    fail(ErrorKind::usage, "--out {}: expected a directory or a new name, found a file", spec.out);
  if (spec.resume == "none") {
    if (used)
      fail(ErrorKind::usage,
           "--out {} already holds a run; continue it with --resume auto, or choose another directory", spec.out);
    return plan;
  }
  if (spec.resume != "auto") {
    const fs::path checkpoint = checkpoint_at(spec.resume, plan.notes);
    if (used && fs::weakly_canonical(checkpoint).parent_path() != fs::weakly_canonical(checkpoints_dir(spec)))
      fail(ErrorKind::usage,
           "--resume {} is not a checkpoint of --out {}, which holds a run of its own; choose another --out",
           spec.resume, spec.out);
    plan.checkpoint = intact_checkpoint(checkpoint);
    // Two histories in one folder would be mixed up by the next resume.
    if (const auto all = list_checkpoints(checkpoints_dir(spec)); used && all.back().step > plan.checkpoint->step())
      fail(ErrorKind::usage,
           "--resume {}: --out {} holds newer checkpoints, up to step {}; move or remove those, or go on in another "
           "--out",
           spec.resume, spec.out, all.back().step);
    return plan;
  }
  std::vector<std::string> ignored;
  const auto entries = list_checkpoints(checkpoints_dir(spec), &ignored);
  for (const std::string& reason : ignored) plan.notes.push_back("ignored " + reason);
  for (auto entry = entries.rbegin(); entry != entries.rend() && plan.checkpoint == nullptr; ++entry) {
    try {
      plan.checkpoint = intact_checkpoint(entry->dir);
    } catch (const Error& e) {
      plan.notes.push_back(fmt::format("passed over a damaged checkpoint: {}", e.what()));
    }
  }
  // A save that was interrupted before its first commit leaves a .tmp folder only; anything else held training that
  // must not be silently begun anew.
  if (plan.checkpoint == nullptr && holds_committed(checkpoints_dir(spec)))
    fail(ErrorKind::input,
         "--resume auto: none of the checkpoints in {} is usable: {}; repair or remove them, or start a new --out",
         checkpoints_dir(spec).string(), plan.notes.empty() ? "no manifest was found" : plan.notes.front());
  return plan;
}

std::string run_id_of(const fs::path& out) {
  const fs::path file = out / "run.json";
  if (fs::exists(file)) return json_string(read_json(file), "run_id", file.string());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  return hex64(hash64(fmt::format("{} {} {} {}", utc_timestamp(), now_s(), ::getpid(), host))).substr(0, 12);
}

FileLock lock_run(const fs::path& out) {
  std::error_code error;
  fs::create_directories(out / "checkpoints", error);
  if (error) fail(ErrorKind::runtime, "--out {}: cannot be created: {}", out.string(), error.message());
  return FileLock(out / ".lock",
                  fmt::format("--out {}: another process is training in it; wait for it or choose another directory",
                              out.string()));
}

void write_run_json(const fs::path& out, Json run) {
  const fs::path file = out / "run.json";
  if (fs::exists(file))
    run["created"] = json_string(read_json(file), "created", file.string(), run["created"].get<std::string>());
  write_file_atomic(out / "run.json", run.dump(2) + "\n");
}

}  // namespace rw
