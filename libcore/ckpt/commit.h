// What makes a directory of complete files a checkpoint, in an order that no crash or power cut can turn into anything
// else: files and manifest fsynced, then the directory, then the rename, then the parent. "Committed" is: the directory
// bears its final name and its manifest verifies.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "libcore/ckpt/manifest.h"

namespace rw {

// Before any file of the step is written, by one process: makes the directory of checkpoints if needed, removes what
// interrupted saves left in it, and makes an empty step-N.tmp. Returns its path. Error{runtime}.
std::filesystem::path prepare_step(const std::filesystem::path& checkpoints_dir, int64_t step);
// Where prepare_step() puts the files.
std::filesystem::path unfinished_path(const std::filesystem::path& checkpoints_dir, int64_t step);

// The manifest of a step from every writer's shard; `identity` and `state` are JSON texts. Error{runtime} when the
// shards do not make up whole tensors.
Manifest make_manifest(int64_t step, const std::string& identity, const std::string& state,
                       const std::vector<ShardRecord>& shards);

// All files lie in step-N.tmp, fsynced. Writes the manifest and gives the directory its name; a committed checkpoint of
// the same step is replaced in one go. Error{runtime}; the step is then not committed, and others are untouched.
void commit_step(const std::filesystem::path& checkpoints_dir, const Manifest& manifest);
// Removes step-N.tmp, as far as it can.
void abandon_step(const std::filesystem::path& checkpoints_dir, int64_t step);

// Runs `action` and returns why it failed, or "": a rank must not leave the others alone in a collective save.
std::string attempt(const std::function<void()>& action);

}  // namespace rw
