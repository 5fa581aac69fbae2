#include "libcore/spec/config_find.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "libcore/base/error.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// Folders that may hold FOLDER/NAME.SUFFIX, nearest first: $RANKWRIGHT_CONFIGS alone when it is set; else, for each
// folder above the executable, its configs (a source tree) and share/rankwright/configs (an installed prefix).
std::vector<fs::path> config_dirs(const ConfigKind& kind) {
  if (const char* set = std::getenv("RANKWRIGHT_CONFIGS"); set != nullptr && *set != '\0')
    return {fs::path(set) / kind.folder};
  std::error_code none;
  std::vector<fs::path> dirs;
  for (fs::path at = fs::read_symlink("/proc/self/exe", none).parent_path(); !at.empty(); at = at.parent_path()) {
    dirs.push_back(at / "configs" / kind.folder);
    dirs.push_back(at / "share" / "rankwright" / "configs" / kind.folder);
    if (at == at.root_path()) break;
  }
  std::erase_if(dirs, [&](const fs::path& dir) { return !fs::is_directory(dir, none); });
  return dirs;
}

}  // namespace

std::optional<fs::path> find_config(const ConfigKind& kind, const fs::path& name) {
  if (name.empty() || name != name.filename()) return std::nullopt;
  std::error_code none;
  for (const fs::path& dir : config_dirs(kind))
    for (const std::string& file : {name.string() + kind.suffix, name.string()})
      if (fs::is_regular_file(dir / file, none)) return dir / file;
  return std::nullopt;
}

std::vector<std::string> config_names(const ConfigKind& kind) {
  std::vector<std::string> names;
  std::error_code none;
  for (const fs::path& dir : config_dirs(kind))
    for (const fs::directory_entry& entry : fs::directory_iterator(dir, none))
      if (entry.path().extension() == kind.suffix) names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

std::string config_advice(const ConfigKind& kind, const std::string& name) {
  const std::vector<std::string> names = config_names(kind);
  if (names.empty()) return "set RANKWRIGHT_CONFIGS to the configs folder to use names";
  std::string known;
  for (const std::string& n : names) known += known.empty() ? n : ", " + n;
  const std::string near = nearest(name, names);
  return near.empty() ? fmt::format("known names: {}", known)
                      : fmt::format("did you mean {}? known names: {}", near, known);
}

}  // namespace rw
