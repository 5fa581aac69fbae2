// Where the shipped descriptions of models and clusters are found by name.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace rw {

// One kind of them: configs/FOLDER/NAME.SUFFIX.
struct ConfigKind {
  const char* folder;  // "models"
  const char* suffix;  // ".json"
};

// The file of `name` (with or without its suffix) in $RANKWRIGHT_CONFIGS/FOLDER or, without that variable, in
// configs/FOLDER or share/rankwright/configs/FOLDER of a folder above the executable, nearest first. Nothing for a path
// of several parts or an unknown name.
std::optional<std::filesystem::path> find_config(const ConfigKind& kind, const std::filesystem::path& name);
// What find_config knows, sorted.
std::vector<std::string> config_names(const ConfigKind& kind);
// For an error about an unknown name: "did you mean X? known names: ...".
std::string config_advice(const ConfigKind& kind, const std::string& name);

}  // namespace rw
