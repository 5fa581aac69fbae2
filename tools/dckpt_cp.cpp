#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/base/units.h"
#include "libcore/ckpt/copy.h"
#include "libcore/ckpt/run_listing.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

CopyReport copy_with_progress(CopyOptions options) {
  std::optional<ByteProgress> progress;  // not before it is known that there is something to do
  int64_t told = 0;
  options.progress = [&](int64_t done, int64_t total) {
    if (!progress) {
      progress.emplace("copying", total);
      progress->now_at(printable_line(options.source.filename().string()));
    }
    progress->add(done - told);
    told = done;
  };
  return copy_checkpoint(options);
}

}  // namespace

int dckpt_cp(int argc, const char* const* argv) {
  std::string path, dest, step;
  bool force = false, json = false;
  const CommandLine line{
      .name = "dckpt cp",
      .description = "Copies a checkpoint, comparing every byte with its digest on the way.",
      .fields = {{.name = "path",
                  .value = &path,
                  .help = "checkpoint, or a run or checkpoints directory for its newest"},
                 {.name = "dest", .value = &dest, .help = "run, directory of checkpoints, or new directory"},
                 step_field(step),
                 {.name = "force", .value = &force, .help = "replace a checkpoint of the same step"},
                 {.name = "json", .value = &json, .help = "print one JSON object"}},
      .positional = {"path", "dest"},
      .required = {"path", "dest"},
      .takes_config = false,
      .footer =
          "The copy is DEST/step-N (in a run DEST/checkpoints/step-N), or DEST itself when DEST has the name of "
          "the step\nor is a checkpoint. It gets its name when it is complete and on disk.\n"
          "Exit code: 0 copied, 3 the source is damaged, 1 it cannot be written; then nothing is left behind."};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;

  const double start_s = now_s();
  CopyOptions options;
  options.source = checkpoint_of(path_with_step(path, step));
  options.target = copy_target(options.source, dest);
  // A trainer removes unfinished saves of its run, and this is one until it is complete.
  const fs::path lock_file = lock_file_of(fs::absolute(options.target).parent_path());
  FileLock lock;
  if (!lock_file.empty()) {
    lock = FileLock(
        lock_file, fmt::format("{}: a trainer is at work in this run; wait for it or copy to another directory", dest));
    options.existing = CopyOptions::Existing::replace_leftover;
  }
  if (force) options.existing = CopyOptions::Existing::replace;
  const CopyReport report = copy_with_progress(options);
  const double seconds = now_s() - start_s;
  if (json) {
    fmt::print("{}\n", json_line({{"path", options.source.string()},
                                  {"output", options.target.string()},
                                  {"step", report.step},
                                  {"bytes", report.bytes},
                                  {"files", report.n_files},
                                  {"seconds", seconds}}));
  } else {
    fmt::print("{}: step {}, {} in {}, every digest as in {}\n", printable_line(options.target.string()), report.step,
               bytes_text(report.bytes), format_seconds(seconds), printable_line(options.source.string()));
  }
  return 0;
}

}  // namespace rw
