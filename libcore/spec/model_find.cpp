// Where a model's config.json is found: a file, a directory, or a name under configs/models.
#include <nlohmann/json.hpp>
#include <system_error>

#include "libcore/base/error.h"
#include "libcore/spec/config_find.h"
#include "libcore/spec/model_spec.h"

namespace rw {

namespace fs = std::filesystem;

ModelSpec load_model_spec(const fs::path& path) {
  constexpr ConfigKind kModels{.folder = "models", .suffix = ".json"};
  std::error_code none;
  const auto load = [](const fs::path& file) { return parse_model_spec(read_json(file), file.string()); };
  if (fs::is_regular_file(path / "config.json", none)) return load(path / "config.json");
  if (fs::exists(path, none) && !fs::is_directory(path, none)) return load(path);
  if (const auto file = find_config(kModels, path)) return load(*file);
  if (fs::is_directory(path, none))
    fail(ErrorKind::input,
         "{}: expected a directory that holds config.json, found none in it; give the model's own directory",
         path.string());
  fail(ErrorKind::input,
       "model {}: expected a config.json, a directory that holds one, or a name under configs/models, found none; {}",
       path.string(), config_advice(kModels, path.string()));
}

}  // namespace rw
