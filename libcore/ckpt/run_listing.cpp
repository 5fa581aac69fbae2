#include "libcore/ckpt/run_listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/manifest.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

bool is_dir(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The last name of a path that may end in a slash or be relative (".").
fs::path full_path(const fs::path& path) {
  std::error_code error;
  fs::path full = fs::absolute(path, error).lexically_normal();
  if (error) full = path;
  return full.has_filename() ? full : full.parent_path();
}

bool is_step_name(const std::string& name) { return step_of_name(name) >= 0; }

bool is_damaged_name(const fs::path& name) {
  return name.extension() == kDamaged && is_step_name(name.stem().string());
}

// Any trace of a step counts: a directory that only holds an interrupted first save is one of checkpoints.
bool holds_steps(const fs::path& dir) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (is_step_name(it->path().stem().string()) && is_dir(it->path())) return true;
  }
  return full_path(dir).filename() == "checkpoints" && is_dir(dir);
}

bool is_run_or_folder(const fs::path& dir) {
  return is_dir(dir) && !is_there(dir / kManifestName) && (is_dir(dir / "checkpoints") || holds_steps(dir));
}

// A node's folder of the local tier, in which a run has a directory of steps: the only one, or empty.
fs::path only_steps_in(const fs::path& dir) {
  const std::vector<fs::path> found = runs_in(dir);
  return found.size() == 1 && !is_dir(found[0] / "checkpoints") ? found[0] : fs::path();
}

std::string utc_text(time_t time) {
  tm parts{};
  char text[32];
  ::gmtime_r(&time, &parts);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// Seconds since the epoch; 0 when it is no time.
time_t utc_time(const std::string& text) {
  tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0' ? ::timegm(&parts) : 0;
}

time_t last_change(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 ? status.st_mtime : 0;
}

const Json* member(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? nullptr : &*found;
}

std::string text_of(const Json& object, const char* key) {
  const Json* found = member(object, key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> loss_of(const Json& identity, const Json& state) {
  for (const Json* object : {&state, &identity}) {
    if (const Json* loss = member(*object, "loss"); loss != nullptr && loss->is_number()) return loss->get<double>();
  }
  // The spike guard remembers the losses before the save.
  const Json* guard = member(state, "guard");
  const Json* losses = guard != nullptr ? member(*guard, "losses") : nullptr;
  if (losses != nullptr && losses->is_array() && !losses->empty() && losses->back().is_number())
    return losses->back().get<double>();
  return std::nullopt;
}

void describe(ListedStep& listed, const Manifest& manifest, const std::string& where) {
  const Json identity = parse_json(manifest.identity, where);
  if (const Json* layout = member(identity, "layout"))
    listed.layout = layout->is_string() ? layout->get<std::string>() : text_of(*layout, "text");
  listed.run_id = text_of(identity, "run_id");
  listed.loss = loss_of(identity, parse_json(manifest.state, where));
  listed.created = manifest.created;
}

void check_sizes(ListedStep& listed, const Manifest& manifest) {
  const int64_t elsewhere = files_elsewhere(manifest, listed.dir);
  if (elsewhere == 0) return check_files(manifest, listed.dir);
  Manifest here = manifest;
  std::erase_if(here.files, [&](const FileRecord& record) { return !is_there(listed.dir / record.name); });
  check_files(here, listed.dir);
  listed.state = StepState::part;
  listed.reason =
      fmt::format("{}: a node's part, {} of {} files", listed.dir.string(), here.files.size(), manifest.files.size());
}

}  // namespace

const char* state_name(StepState state) {
  switch (state) {
    case StepState::committed: return "committed";
    case StepState::partial: return "partial";
    case StepState::part: return "part";
    case StepState::local: return "local";
    case StepState::damaged: return "damaged";
  }
  return "?";
}

PathKind path_kind(const fs::path& path) {
  const bool is_a_dir = is_dir(path);
  const fs::path name = full_path(path).filename();
  if (is_a_dir && name.extension() == ".tmp" && is_step_name(name.stem().string())) {
    fail(ErrorKind::input,
         "{}: expected a checkpoint, found a save that is under way or did not finish: it is none; name its run or a "
         "committed step",
         path.string());
  }
  if (is_there(path / kManifestName) || (is_a_dir && is_step_name(name.stem().string()))) return PathKind::checkpoint;
  if (is_dir(path / "checkpoints")) return PathKind::run;
  if (is_a_dir && holds_steps(path)) return PathKind::checkpoints;
  if (is_there(path / "config.json")) return PathKind::huggingface;
  if (is_a_dir && !runs_in(path).empty()) return only_steps_in(path).empty() ? PathKind::runs : PathKind::checkpoints;
  fail(
      ErrorKind::input,
      "{}: expected a run (checkpoints/), a checkpoints directory (step-N/), a checkpoint (manifest.json) or a Hugging "
      "Face directory (config.json), found {}",
      path.string(),
      is_a_dir         ? "a directory with none of these"
      : is_there(path) ? "a file"
                       : "nothing");
}

fs::path steps_folder(const fs::path& path) {
  switch (path_kind(path)) {
    case PathKind::run: return path / "checkpoints";
    case PathKind::checkpoints: return holds_steps(path) ? path : only_steps_in(path);
    case PathKind::checkpoint: break;
    case PathKind::huggingface: break;
    case PathKind::runs: break;
  }
  fail(ErrorKind::input, "{}: expected one run or checkpoints directory, found {}", path.string(),
       path_kind(path) == PathKind::runs         ? "a directory of several; name one of them"
       : path_kind(path) == PathKind::checkpoint ? "a checkpoint; name the directory it lies in"
                                                 : "a Hugging Face directory");
}

fs::path checkpoint_of(const fs::path& path) {
  if (path_kind(path) == PathKind::checkpoint) return path;
  const fs::path folder = steps_folder(path);
  std::vector<std::string> ignored;
  const std::vector<CheckpointEntry> list = list_checkpoints(folder, &ignored);
  for (const std::string& line : ignored) log_warning("passed over: {}", line);
  if (list.empty()) {
    fail(ErrorKind::input, "{}: expected a committed checkpoint, found none ({} passed over)", folder.string(),
         ignored.size());
  }
  return list.back().dir;
}

std::vector<fs::path> runs_in(const fs::path& dir) {
  std::vector<fs::path> runs;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (is_run_or_folder(it->path())) runs.push_back(it->path());
  }
  if (error) fail(ErrorKind::input, "{}: cannot be listed: {}", dir.string(), error.message());
  std::sort(runs.begin(), runs.end());
  return runs;
}

fs::path lock_file_of(const fs::path& checkpoints_dir) {
  const fs::path own = checkpoints_dir / ".lock", full = full_path(checkpoints_dir), run = full.parent_path();
  if (is_there(own)) return own;
  return full.filename() == "checkpoints" && is_there(run / "run.json") ? run / ".lock" : fs::path();
}

ListedStep list_step(const fs::path& dir) {
  ListedStep listed;
  listed.dir = dir;
  listed.bytes = directory_bytes(dir);
  try {
    const Manifest manifest = read_manifest(dir);
    listed.step = manifest.step;
    check_name(manifest, dir);
    describe(listed, manifest, dir.string());
    check_sizes(listed, manifest);
  } catch (const Error& e) {
    listed.state = StepState::damaged;
    listed.reason = e.what();
  }
  if (is_damaged_name(full_path(dir).filename())) {
    listed.state = StepState::damaged;
    listed.set_aside = true;
    listed.reason = dir.string() + ": set aside as damaged by a trainer; `dckpt verify` of this directory says why";
  }
  const time_t changed = last_change(dir);
  const time_t created = utc_time(listed.created);
  if (created == 0) listed.created = utc_text(changed);
  listed.age_s = std::max(0.0, std::difftime(std::time(nullptr), created == 0 ? changed : created));
  return listed;
}

std::vector<ListedStep> list_steps(const fs::path& checkpoints_dir) {
  std::vector<ListedStep> list;
  std::vector<fs::path> unfinished;
  for (const auto& [step, dir] : step_directories(checkpoints_dir, &unfinished)) {
    ListedStep listed = list_step(dir);
    if (listed.state == StepState::damaged && !is_there(dir)) continue;  // pruned meanwhile
    listed.step = step;
    list.push_back(std::move(listed));
  }
  for (const auto& [step, dir] : damaged_directories(checkpoints_dir)) {
    list.push_back(list_step(dir));
    list.back().step = step;
  }
  for (const fs::path& dir : unfinished) {
    if (!is_there(dir)) continue;  // committed or removed meanwhile
    ListedStep listed;
    listed.step = step_of_name(dir.stem().string());
    listed.dir = dir;
    listed.state = StepState::partial;
    listed.reason = dir.string() + ": a save that did not finish";
    listed.bytes = directory_bytes(dir);
    const time_t changed = last_change(dir);
    listed.created = utc_text(changed);
    listed.age_s = std::max(0.0, std::difftime(std::time(nullptr), changed));
    list.push_back(std::move(listed));
  }
  std::stable_sort(list.begin(), list.end(), [](const ListedStep& a, const ListedStep& b) { return a.step < b.step; });
  return list;
}

void verify_steps(std::vector<ListedStep>& steps, const VerifyWatch& watch) {
  for (ListedStep& s : steps) {
    if (s.state == StepState::damaged || s.state == StepState::partial) continue;
    const VerifiedCheckpoint found = verify_checkpoint(s.dir, watch);
    if (found.faults.empty() || !is_there(s.dir)) continue;  // intact, or pruned meanwhile
    s.state = StepState::damaged;
    s.reason = found.faults.front();
    if (found.faults.size() > 1) s.reason += fmt::format(" (and {} more faults)", found.faults.size() - 1);
  }
}

}  // namespace rw
