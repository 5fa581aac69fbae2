#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/ckpt/verify.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/model_source.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct Outcome {
  std::vector<VerifiedCheckpoint> checkpoints;
  std::vector<fs::path> unfinished;
};

// safetensors files have no digests of their own; those that we exported have them in rankwright.json.
VerifiedCheckpoint verify_huggingface(const fs::path& dir) {
  VerifiedCheckpoint report;
  report.dir = dir;
  try {
    const ModelSource model = open_model_source(dir);
    for (const TensorInfo& t : model.weights->tensors()) report.bytes += n_elements(t.shape) * dtype_bytes(t.dtype);
    if (!check_artifact(dir))
      fmt::print(stderr, "{}: no rankwright.json with digests here: headers, sizes, names and shapes were checked\n",
                 printable(dir.string()));
  } catch (const Error& e) {
    report.faults.push_back(e.what());
  }
  return report;
}

Outcome verify_path(const fs::path& path) {
  const PathKind kind = path_kind(path);
  Outcome outcome;
  if (kind == PathKind::huggingface) {
    outcome.checkpoints.push_back(verify_huggingface(path));
    return outcome;
  }
  const fs::path folder = kind == PathKind::checkpoint ? path : steps_folder(path);
  int64_t total = 0;
  if (kind == PathKind::checkpoint) total = directory_bytes(path);
  else
    for (const auto& [step, dir] : step_directories(folder)) total += directory_bytes(dir);
  ByteProgress progress("verifying", total);
  const VerifyWatch watch{.begin = [&](const fs::path& dir) { progress.now_at(printable(dir.filename().string())); },
                          .progress = [&](int64_t bytes) { progress.add(bytes); }};
  if (kind == PathKind::checkpoint) outcome.checkpoints.push_back(verify_checkpoint(path, watch));
  else outcome.checkpoints = verify_checkpoints(folder, watch, &outcome.unfinished);
  return outcome;
}

Json outcome_json(const Outcome& outcome, bool intact) {
  Json checkpoints = Json::array(), unfinished = Json::array();
  for (const VerifiedCheckpoint& c : outcome.checkpoints) {
    checkpoints.push_back({{"path", c.dir.string()},
                           {"step", c.step},
                           {"bytes", c.bytes},
                           {"intact", c.faults.empty()},
                           {"files_elsewhere", c.n_files_elsewhere},
                           {"faults", c.faults}});
  }
  for (const fs::path& dir : outcome.unfinished) unfinished.push_back(dir.string());
  return {{"intact", intact}, {"checkpoints", checkpoints}, {"unfinished", unfinished}};
}

}  // namespace

int dckpt_verify(int argc, const char* const* argv) {
  std::string path;
  bool json = false;
  const CommandLine line{
      .name = "dckpt verify",
      .description =
          "Reads every byte of a checkpoint, or of all checkpoints of a run, and compares it with the digests.",
      .fields = {{.name = "path",
                  .value = &path,
                  .help = "run, checkpoints directory, checkpoint or Hugging Face directory"},
                 {.name = "json", .value = &json, .help = "print the result as one JSON object on standard output"}},
      .positional = {"path"},
      .required = {"path"},
      .takes_config = false,
      .footer = "Exit code: 0 intact, 3 damaged, 2 nothing there to verify."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  const Outcome outcome = verify_path(path);
  if (outcome.checkpoints.empty()) fail(ErrorKind::input, "{}: expected a checkpoint to verify, found none", path);
  bool intact = true;
  for (const VerifiedCheckpoint& c : outcome.checkpoints) intact = intact && c.faults.empty();
  if (json) {
    fmt::print("{}\n", json_line(outcome_json(outcome, intact)));
  } else {
    for (const VerifiedCheckpoint& c : outcome.checkpoints) {
      fmt::print("{}: {} ({}){}\n", printable(c.dir.string()), c.faults.empty() ? "intact" : "DAMAGED",
                 bytes_text(c.bytes),
                 c.n_files_elsewhere > 0
                     ? fmt::format(", as far as it is here: {} files are on other nodes", c.n_files_elsewhere)
                     : "");
      for (const std::string& fault : c.faults) fmt::print("  {}\n", printable(fault));
    }
    for (const fs::path& dir : outcome.unfinished)
      fmt::print("{}: a save that did not finish; no checkpoint\n", printable(dir.string()));
  }
  return intact ? 0 : exit_code(ErrorKind::verdict);
}

}  // namespace rw
