// What lies in a checkpoints directory, step by step, and what the paths that people type mean.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "libcore/ckpt/verify.h"

namespace rw {

enum class PathKind : uint8_t {
  checkpoint,   // holds manifest.json, or is a directory named step-N or step-N.damaged
  run,          // holds checkpoints/
  checkpoints,  // holds step-N directories, or is an empty directory of the name checkpoints, or a node's folder of
                // the local tier that holds one run's directory of steps and nothing else of the kind
  huggingface,  // holds config.json
  runs,         // holds directories that are runs or checkpoints directories
};
// Recognises a directory by what it holds. Error{input} says what was looked for and what was found.
PathKind path_kind(const std::filesystem::path& path);
// The directory of a run's or checkpoints directory's steps; Error{input} for any other kind.
std::filesystem::path steps_folder(const std::filesystem::path& path);
// A checkpoint itself, or the newest committed one of a run or a checkpoints directory (what was passed over is said in
// a warning). Error{input} when there is none, and for other kinds.
std::filesystem::path checkpoint_of(const std::filesystem::path& path);
// The runs and checkpoints directories in a directory, by name.
std::vector<std::filesystem::path> runs_in(const std::filesystem::path& dir);
// The file that a trainer locks while it works in the run, or in the directory that --checkpoint-dir names, to which
// these checkpoints belong; empty when no run is known.
std::filesystem::path lock_file_of(const std::filesystem::path& checkpoints_dir);

enum class StepState : uint8_t {
  committed,  // final name, a manifest that verifies, all files there with the right sizes
  partial,    // a save or copy that is under way or was interrupted (step-N.tmp): no checkpoint
  part,       // a node's own directory: the files here have the right sizes, others are on other nodes
  local,      // committed or part, in a folder of the run's local tier on this host
  damaged,    // final name, but no manifest that verifies, or a file is missing or has another size; or set aside
};
const char* state_name(StepState state);

struct ListedStep {
  int64_t step = -1;
  std::filesystem::path dir;
  StepState state = StepState::committed;
  bool set_aside = false;      // damaged, and renamed so by a trainer that found it
  std::string reason;          // why it is not committed
  int64_t bytes = 0;           // of its files
  std::string created;         // UTC, of the manifest; of the directory's last change where that cannot be read
  double age_s = 0;            // by the wall clock
  std::string layout, run_id;  // of the identity; empty when not known
  std::optional<double> loss;  // the last training loss before the save, where the state or identity has it
};
// By step; a partial one comes after the committed one of its step. Tensors' bytes are not read.
std::vector<ListedStep> list_steps(const std::filesystem::path& checkpoints_dir);
// One directory that is meant as a checkpoint.
ListedStep list_step(const std::filesystem::path& dir);
// The steps of a run's local tier that lie on this host, where its run.json names one: every node's folder that is
// there. By folder, then step.
std::vector<ListedStep> list_local_steps(const std::filesystem::path& run);
// Reads every byte of what can be loaded, and makes what lost its digests `damaged`.
void verify_steps(std::vector<ListedStep>& steps, const VerifyWatch& watch);

}  // namespace rw
