// A run directory: run.json (identity), metrics.jsonl, events.jsonl, checkpoints/.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/spec/train_spec.h"

namespace rw {

// What --out and --resume come to, decided before anything is written.
struct ResumePlan {
  std::unique_ptr<Checkpoint> checkpoint;  // null: from step 0
  std::vector<std::string> notes;          // ignored half-written checkpoints and the like
};
// Error{usage} when --out holds a run and --resume is none, or when --resume names nothing that can be read.
ResumePlan plan_resume(const TrainSpec& spec);

std::filesystem::path checkpoints_dir(const TrainSpec& spec);
// The run id of an existing run.json, or a new one.
std::string run_id_of(const std::filesystem::path& out);
// Creates the directory and keeps other runs out of it; Error{usage} when one is in it.
FileLock lock_run(const std::filesystem::path& out);
// A resumed run keeps its date of creation.
void write_run_json(const std::filesystem::path& out, Json run);

}  // namespace rw
