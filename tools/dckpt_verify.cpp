#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/model_source.h"
#include "libcore/ckpt/safetensors.h"
#include "libcore/ckpt/verify.h"
#include "tools/cli.h"
#include "tools/dckpt.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

struct Outcome {
  std::vector<VerifiedCheckpoint> checkpoints;
  std::vector<fs::path> unfinished;
};

// A Hugging Face directory has no digests: opening it checks headers, sizes, names and shapes.
VerifiedCheckpoint verify_huggingface(const fs::path& dir) {
  VerifiedCheckpoint report;
  report.dir = dir;
  try {
    const ModelSource model = open_model_source(dir);
    for (const TensorInfo& t : model.weights->tensors()) report.bytes += n_elements(t.shape) * dtype_bytes(t.dtype);
    fmt::print(stderr, "{}: safetensors files have no digests: headers, sizes, names and shapes were checked\n",
               dir.string());
  } catch (const Error& e) {
    report.faults.push_back(e.what());
  }
  return report;
}

// A step's directory that lost its manifest is still meant as a checkpoint.
bool looks_like_step(const fs::path& path) {
  fs::path named = path.has_filename() ? path : path.parent_path();
  std::error_code error;
  return named.filename().string().starts_with("step-") && fs::is_directory(path, error);
}

Outcome verify_path(const fs::path& path) {
  const auto begin = [](const fs::path& dir) { fmt::print(stderr, "verifying {}\n", dir.string()); };
  Outcome outcome;
  if (looks_like_step(path)) {
    begin(path);
    outcome.checkpoints.push_back(verify_checkpoint(path));
    return outcome;
  }
  switch (model_place(path)) {
    case ModelPlace::run:
      outcome.checkpoints = verify_checkpoints(path / "checkpoints", begin, &outcome.unfinished);
      break;
    case ModelPlace::checkpoint:
      begin(path);
      outcome.checkpoints.push_back(verify_checkpoint(path));
      break;
    case ModelPlace::huggingface: outcome.checkpoints.push_back(verify_huggingface(path)); break;
  }
  return outcome;
}

Json outcome_json(const Outcome& outcome, bool intact) {
  Json checkpoints = Json::array(), unfinished = Json::array();
  for (const VerifiedCheckpoint& c : outcome.checkpoints) {
    checkpoints.push_back({{"path", c.dir.string()},
                           {"step", c.step},
                           {"bytes", c.bytes},
                           {"intact", c.faults.empty()},
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
      .fields = {{.name = "path", .value = &path, .help = "run, checkpoint or Hugging Face directory"},
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
    fmt::print("{}\n", outcome_json(outcome, intact).dump(-1, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const VerifiedCheckpoint& c : outcome.checkpoints) {
      fmt::print("{}: {} ({})\n", c.dir.string(), c.faults.empty() ? "intact" : "DAMAGED",
                 format_bytes(static_cast<double>(c.bytes)));
      for (const std::string& fault : c.faults) fmt::print("  {}\n", fault);
    }
    for (const fs::path& dir : outcome.unfinished)
      fmt::print("{}: a save that did not finish; no checkpoint\n", dir.string());
  }
  return intact ? 0 : exit_code(ErrorKind::verdict);
}

}  // namespace rw
