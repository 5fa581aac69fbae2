#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/run_listing.h"
#include "libcore/ckpt/step_dirs.h"
#include "libcore/ckpt/verify.h"
#include "libcore/formats/hf_identity.h"
#include "libcore/formats/hf_optimizer.h"
#include "libcore/formats/model_source.h"
#include "libcore/tensor/read_check.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct Outcome {
  std::vector<VerifiedCheckpoint> checkpoints;
  std::vector<fs::path> unfinished, set_aside;
};

int64_t safetensors_bytes(const fs::path& dir) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".safetensors") continue;
    std::error_code gone;
    const auto size = it->file_size(gone);
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

// safetensors files have no digests of their own; those that we exported have them in rankwright.json.
VerifiedCheckpoint verify_huggingface(const fs::path& dir) {
  VerifiedCheckpoint report;
  report.dir = dir;
  report.bytes = safetensors_bytes(dir);
  const auto count = [&](const TensorSource& source) {
    for (const TensorInfo& t : source.tensors()) {
      check_read(source, t.name, whole(t.shape), DType::f32);
      report.tensor_bytes += n_elements(t.shape) * dtype_bytes(t.dtype);
    }
  };
  try {
    count(*open_model_source(dir).weights);
    if (holds_optimizer(dir)) count(*open_optimizer(dir));
    if (!check_artifact(dir, ArtifactPart::optimizer))
      fmt::print(stderr, "{}: no rankwright.json with digests here: headers, sizes, names and shapes were checked\n",
                 printable_line(dir.string()));
  } catch (const Error& e) {
    report.faults.push_back(e.what());
  }
  return report;
}

void verify_path(const fs::path& path, Outcome& outcome) {
  const PathKind kind = path_kind(path);
  if (kind == PathKind::huggingface) {
    outcome.checkpoints.push_back(verify_huggingface(path));
    return;
  }
  const fs::path folder = kind == PathKind::checkpoint ? path : steps_folder(path);
  int64_t total = 0;
  if (kind == PathKind::checkpoint) total = directory_bytes(path);
  else
    for (const auto& [step, dir] : step_directories(folder)) total += directory_bytes(dir);
  ByteProgress progress("verifying", total);
  const VerifyWatch watch{
      .begin = [&](const fs::path& dir) { progress.now_at(printable_line(dir.filename().string())); },
      .progress = [&](int64_t bytes) { progress.add(bytes); }};
  if (kind == PathKind::checkpoint) {
    outcome.checkpoints.push_back(verify_checkpoint(path, watch));
    return;
  }
  for (VerifiedCheckpoint& c : verify_checkpoints(folder, watch, &outcome.unfinished))
    outcome.checkpoints.push_back(std::move(c));
  for (const auto& [step, dir] : damaged_directories(folder)) outcome.set_aside.push_back(dir);
}

Json outcome_json(const Outcome& outcome, bool intact) {
  Json checkpoints = Json::array(), unfinished = Json::array(), set_aside = Json::array();
  for (const VerifiedCheckpoint& c : outcome.checkpoints) {
    checkpoints.push_back({{"path", c.dir.string()},
                           {"step", c.step},
                           {"bytes", c.bytes},
                           {"tensor_bytes", c.tensor_bytes},
                           {"intact", c.faults.empty()},
                           {"files_elsewhere", c.n_files_elsewhere},
                           {"faults", c.faults}});
  }
  for (const fs::path& dir : outcome.unfinished) unfinished.push_back(dir.string());
  for (const fs::path& dir : outcome.set_aside) set_aside.push_back(dir.string());
  return {{"intact", intact}, {"checkpoints", checkpoints}, {"unfinished", unfinished}, {"set_aside", set_aside}};
}

}  // namespace

int dckpt_verify(int argc, const char* const* argv) {
  std::vector<std::string> paths;
  bool json = false;
  const CommandLine line{
      .name = "dckpt verify",
      .description =
          "Reads every byte of a checkpoint, or of all checkpoints of a run, and compares it with the digests.",
      .fields = {{.name = "path",
                  .value = &paths,
                  .help = "runs, checkpoints directories, checkpoints or Hugging Face directories"},
                 {.name = "json", .value = &json, .help = "print the result as one JSON object on standard output"}},
      .positional = {"path"},
      .required = {"path"},
      .takes_config = false,
      .footer =
          "Exit code: 0 intact, 3 damaged, 2 nothing there to verify. What a trainer set aside (step-N.damaged) is "
          "named,\nand "
          "judged only when its directory is the path."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  Outcome outcome;
  for (const std::string& path : paths) {
    const size_t before = outcome.checkpoints.size();
    verify_path(path, outcome);
    if (outcome.checkpoints.size() == before)
      fail(ErrorKind::input, "{}: expected a checkpoint to verify, found none{}", path,
           outcome.set_aside.empty() ? "" : " but what was set aside as damaged");
  }
  bool intact = true;
  for (const VerifiedCheckpoint& c : outcome.checkpoints) intact = intact && c.faults.empty();
  if (json) {
    fmt::print("{}\n", json_line(outcome_json(outcome, intact)));
  } else {
    for (const VerifiedCheckpoint& c : outcome.checkpoints) {
      fmt::print("{}: {} ({}){}\n", printable_line(c.dir.string()), c.faults.empty() ? "intact" : "DAMAGED",
                 bytes_text(c.bytes),
                 c.n_files_elsewhere > 0
                     ? fmt::format(", as far as it is here: {} files are on other nodes", c.n_files_elsewhere)
                     : "");
      for (const std::string& fault : c.faults) fmt::print("  {}\n", printable_line(fault));
    }
    for (const fs::path& dir : outcome.unfinished)
      fmt::print("{}: a save that did not finish; no checkpoint\n", printable_line(dir.string()));
    for (const fs::path& dir : outcome.set_aside)
      fmt::print("{}: set aside as damaged; no checkpoint\n", printable_line(dir.string()));
  }
  return intact ? 0 : exit_code(ErrorKind::verdict);
}

}  // namespace rw
