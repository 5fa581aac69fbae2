#include "tools/output_run.h"

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/train/run_dir.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// What a directory holds besides a lock and the leftovers of a save that did not finish; "" when nothing.
std::string content(const fs::path& dir) {
  for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
    const std::string name = entry.path().filename().string();
    if (name == ".lock") continue;
    if (name != "checkpoints") return name;
    if (const auto steps = step_directories(entry.path()); !steps.empty())
      return name + "/" + steps.begin()->second.filename().string();
  }
  return "";
}

void check_same_run(const fs::path& dir, const std::string& run_id, const std::string& found) {
  const fs::path file = dir / "run.json";
  if (!fs::exists(file)) {
    if (fs::exists(dir / "checkpoints")) return;
    fail(ErrorKind::usage, "{}: --force replaces a checkpoint in a run's directory, but this is none: it holds {}",
         dir.string(), found);
  }
  const std::string there = json_string(read_json(file), "run_id", file.string());
  if (there != run_id)
    fail(ErrorKind::usage, "{}: holds run {}, the checkpoint is of {}: choose another directory", dir.string(), there,
         run_id.empty() ? "no run" : "run " + run_id);
}

}  // namespace

OutputRun::OutputRun(const fs::path& dir, const std::string& run_id, bool force) : dir_(dir) {
  std::error_code error;
  is_new_ = !fs::exists(dir, error);
  if (!is_new_ && !fs::is_directory(dir, error))
    fail(ErrorKind::usage, "{}: expected a directory to write, found a file", dir.string());
  const std::string found = is_new_ ? "" : content(dir);
  was_empty_ = found.empty();
  if (!was_empty_ && !force)
    fail(ErrorKind::usage, "{}: expected an empty or new directory, found {} in it: choose another, or --force",
         dir.string(), found);
  if (!was_empty_) check_same_run(dir, run_id, found);
  TrainSpec spec;
  spec.out = dir.string();
  lock_ = lock_run(spec);
}

OutputRun::~OutputRun() {
  if (finished_) return;
  std::error_code ignored;
  lock_.clear();
  if (is_new_) {
    fs::remove_all(dir_, ignored);
  } else if (was_empty_) {
    fs::remove_all(checkpoints(), ignored);
    fs::remove(dir_ / ".lock", ignored);
  }
}

void OutputRun::finish(Json identity) {
  finished_ = true;
  for (const char* text : {"tokenizer_json", "tokenizer_config_json"}) identity.erase(text);
  if (!fs::exists(dir_ / "run.json")) write_run_json(dir_, std::move(identity));
}

}  // namespace rw
