// The names inside a checkpoints directory, and what a directory under one of them is worth.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace rw {

constexpr const char* kManifestName = "manifest.json";

std::string step_name(int64_t step);  // "step-00000100"
std::filesystem::path replaced_path(
    const std::filesystem::path& dir);  // where a step lies while its successor moves in

// Directories that bear a step's final name, by step, whatever is in them; unfinished saves are named in `unfinished`.
std::map<int64_t, std::filesystem::path> step_directories(const std::filesystem::path& checkpoints_dir,
                                                          std::vector<std::filesystem::path>* unfinished = nullptr);

// Removes what interrupted saves and prunings left: step-*.tmp, and step-*.replaced whose successor arrived (otherwise
// it is renamed back). Error{runtime} when that is not possible.
void remove_leftovers(const std::filesystem::path& checkpoints_dir);

}  // namespace rw
