// The names inside a checkpoints directory, and moving directories so that a crash leaves whole ones.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rw {

constexpr const char* kManifestName = "manifest.json";
constexpr std::string_view kDamaged = ".damaged";  // behind the name of a step that was set aside

std::string step_name(int64_t step);                               // "step-00000100"
int64_t step_of_name(std::string_view name);                       // "step-00000100" -> 100; -1 for any other name
std::filesystem::path tmp_path(const std::filesystem::path& dir);  // where a step is written, or dies
std::filesystem::path replaced_path(
    const std::filesystem::path& dir);                                 // where a step lies while its successor moves in
std::filesystem::path damaged_path(const std::filesystem::path& dir);  // where a step found damaged is kept

// Directories that bear a step's final name, by step, whatever is in them; unfinished saves are named in `unfinished`.
// Those set aside as damaged are not among them.
std::map<int64_t, std::filesystem::path> step_directories(const std::filesystem::path& checkpoints_dir,
                                                          std::vector<std::filesystem::path>* unfinished = nullptr);

// What interrupted saves, copies and prunings left and no reader needs: step-*.tmp, and step-*.replaced whose successor
// arrived.
std::vector<std::filesystem::path> leftovers(const std::filesystem::path& checkpoints_dir);
// Removes them; a step-*.replaced whose successor did not arrive is renamed back. Error{runtime} when that is not
// possible.
void remove_leftovers(const std::filesystem::path& checkpoints_dir);

// Puts tmp, complete and fsynced, in the place of `final`, and fsyncs their directory. A committed step of the same
// name is swapped out in one system call where the file system can; elsewhere it steps aside under a name that the
// reader accepts while the final one is missing. Error{runtime}; `final` is then the old one or the new one, whole.
void publish_directory(const std::filesystem::path& tmp, const std::filesystem::path& final);

// Removes a step's directory: first its name, so that a crash half way leaves no directory that looks committed.
// Nothing happens when it is gone already. Error{runtime}.
void remove_step(const std::filesystem::path& dir);

// Renames a step's directory to step-N.damaged, in the place of an earlier one of that name, and fsyncs their parent:
// it is evidence, never read as a checkpoint, counted or removed. Nothing happens when it is gone already.
// Error{runtime}.
void set_aside_damaged(const std::filesystem::path& step_dir);
// Those that were set aside, by step.
std::map<int64_t, std::filesystem::path> damaged_directories(const std::filesystem::path& checkpoints_dir);

int64_t directory_bytes(const std::filesystem::path& dir);  // of the files in it; 0 when it cannot be read

}  // namespace rw
