// Where a model's config.json is found: a file, a directory, or a name under configs/models.
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/spec/model_spec.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Folders that may hold models/NAME.json, nearest first: $RANKWRIGHT_CONFIGS alone when it is set; else, for each
// folder above the executable, its configs (a source tree) and share/rankwright/configs (an installed prefix).
std::vector<fs::path> config_dirs() {
  if (const char* set = std::getenv("RANKWRIGHT_CONFIGS"); set != nullptr && *set != '\0')
    return {fs::path(set) / "models"};
  std::error_code none;
  std::vector<fs::path> dirs;
  for (fs::path at = fs::read_symlink("/proc/self/exe", none).parent_path(); !at.empty(); at = at.parent_path()) {
    dirs.push_back(at / "configs" / "models");
    dirs.push_back(at / "share" / "rankwright" / "configs" / "models");
    if (at == at.root_path()) break;
  }
  std::erase_if(dirs, [&](const fs::path& dir) { return !fs::is_directory(dir, none); });
  return dirs;
}

std::vector<std::string> known_names(const std::vector<fs::path>& dirs) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::path& dir : dirs)
    for (const fs::directory_entry& entry : fs::directory_iterator(dir, none))
      if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

[[noreturn]] void fail_unknown(const std::string& name, const std::vector<fs::path>& dirs) {
  const std::vector<std::string> names = known_names(dirs);
  std::string known;
  for (const std::string& n : names) known += known.empty() ? n : ", " + n;
  std::string advice = "set RANKWRIGHT_CONFIGS to the configs folder to use names";
  if (!names.empty()) advice = fmt::format("known names: {}", known);
  if (const std::string near = nearest(name, names); !near.empty())
    advice = fmt::format("did you mean {}? {}", near, advice);
  fail(ErrorKind::input,
       "model {}: expected a config.json, a directory that holds one, or a name under configs/models, found none; {}",
       name, advice);
}

}  // namespace

ModelSpec load_model_spec(const fs::path& path) {
  std::error_code none;
  const auto load = [](const fs::path& file) { return parse_model_spec(read_json(file), file.string()); };
  if (fs::is_regular_file(path / "config.json", none)) return load(path / "config.json");
  if (fs::exists(path, none) && !fs::is_directory(path, none)) return load(path);

  const bool is_name = !path.empty() && path == path.filename();
  const std::vector<fs::path> dirs = config_dirs();
  if (is_name)
    for (const fs::path& dir : dirs)
      for (const std::string& file : {path.string() + ".json", path.string()})
        if (fs::is_regular_file(dir / file, none)) return load(dir / file);

  if (fs::is_directory(path, none))
    fail(ErrorKind::input,
         "{}: expected a directory that holds config.json, found none in it; give the model's own directory",
         path.string());
  fail_unknown(path.string(), dirs);
}

}  // namespace rw
