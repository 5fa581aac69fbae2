// A run directory: run.json (identity), metrics.jsonl, events.jsonl, checkpoints/.
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/checkpoint.h"
#include "libcore/ckpt/local_tier.h"
#include "libcore/comm/comm.h"
#include "libcore/spec/train_spec.h"

namespace rw {

// What --out and --resume come to, decided before anything is written.
struct ResumePlan {
  std::unique_ptr<Checkpoint> checkpoint;      // null: from step 0
  LocalStep local;                             // where its files are, when it is of the local tier (step -1: it is not)
  std::filesystem::path local_dir;             // where this node looked for it
  std::vector<std::string> notes;              // ignored half-written checkpoints and the like
  std::vector<std::filesystem::path> damaged;  // newer than `checkpoint`, with bytes that are not what was saved
};
// What run.json of --out says of this start: how often the run was started before it, and the local tier of the last.
struct EarlierStarts {
  int64_t generation = 0;
  std::string local_checkpoint_dir;
};
EarlierStarts earlier_starts(const std::filesystem::path& out);
// Collective. `local` is this node's folder of the local tier, or empty. The newest step of either tier whose every
// byte is right wins; every file is read once by one rank. SharedError{usage} when --out holds a run and --resume is
// none, or when --resume names nothing that can be read.
ResumePlan plan_resume(const TrainSpec& spec, const std::filesystem::path& local, Comm& comm);

// By one rank. What the plan found damaged, where it has an older one to go on from: kept as evidence, and never
// counted as a checkpoint again.
void set_aside(const ResumePlan& plan);

// --checkpoint-dir, or checkpoints in --out.
std::filesystem::path checkpoints_dir(const TrainSpec& spec);
// The run id of an existing run.json, or a new one.
std::string run_id_of(const std::filesystem::path& out);
// Creates the directories and keeps other runs out of them; Error{usage} when one is in them. Where the checkpoints lie
// elsewhere, checkpoints in --out becomes a link to them.
std::vector<FileLock> lock_run(const TrainSpec& spec);
// A resumed run keeps its date of creation.
void write_run_json(const std::filesystem::path& out, Json run);

}  // namespace rw
