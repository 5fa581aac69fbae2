#include "tools/dckpt_step.h"

#include "libcore/base/error.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"

namespace rw {

namespace fs = std::filesystem;

Field step_field(std::string& step, const std::string& of) {
  return {.name = "step",
          .value = &step,
          .help = "this step of the run" + (of.empty() ? "" : " " + of) + ", a number; when not given, the newest"};
}

int64_t number_of(const std::string& flag, const std::string& text, int64_t min) {
  int64_t number = 0;
  set_field({.name = flag, .value = &number, .help = "", .min = static_cast<double>(min)}, text, "--");
  return number;
}

fs::path path_with_step(const fs::path& path, const std::string& step) {
  if (step.empty()) return path;
  const int64_t wanted = number_of("step", step, 0);
  const PathKind kind = path_kind(path);
  if (kind == PathKind::checkpoint || kind == PathKind::huggingface)
    fail(ErrorKind::usage, "--step {}: expected a run or a checkpoints directory, found {}: {}", wanted,
         kind == PathKind::checkpoint ? "one checkpoint" : "a Hugging Face directory", path.string());
  const fs::path folder = steps_folder(path);
  std::string there;
  for (const auto& [found, dir] : step_directories(folder)) {
    if (found == wanted) return dir;
    there += (there.empty() ? "" : ", ") + std::to_string(found);
  }
  fail(ErrorKind::input, "--step {}: {} has no such step{}", wanted, folder.string(),
       there.empty() ? "" : "; there are " + there);
}

}  // namespace rw
