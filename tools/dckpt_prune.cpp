#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/json.h"
#include "libcore/ckpt/retention.h"
#include "libcore/ckpt/step_dirs.h"
#include "tools/byte_progress.h"
#include "tools/cli.h"
#include "tools/dckpt.h"
#include "tools/dckpt_step.h"
#include "tools/dckpt_text.h"

namespace rw {

namespace fs = std::filesystem;

namespace {

// The lock that a trainer holds while it works in the run. Nothing when one does, or when the directory is no run's, so
// that nobody can say who is writing in it.
std::optional<FileLock> lock_of(const fs::path& folder, PruneOptions::Action action) {
  const fs::path file = lock_file_of(folder);
  if (file.empty()) return std::nullopt;
  // Without the file nobody holds it, and a plan makes none.
  if (action == PruneOptions::Action::plan && !fs::exists(file)) return FileLock();
  try {
    return FileLock(file, "a trainer is at work");
  } catch (const Error& e) {
    if (e.kind() == ErrorKind::usage) return std::nullopt;
    throw;
  }
}

Json gone_json(const std::vector<RemovedDirectory>& list) {
  Json j = Json::array();
  for (const RemovedDirectory& d : list) j.push_back({{"step", d.step}, {"path", d.dir.string()}, {"bytes", d.bytes}});
  return j;
}

Json stay_json(const std::vector<ListedStep>& list) {
  Json j = Json::array();
  for (const ListedStep& s : list) {
    Json item = {{"step", s.step}, {"path", s.dir.string()}, {"bytes", s.bytes}};
    if (!s.reason.empty()) item["reason"] = s.reason;
    j.push_back(std::move(item));
  }
  return j;
}

void print_text(const PruneReport& report, bool dry_run) {
  const char* removed = dry_run ? "would remove" : "removed";
  for (const RemovedDirectory& d : report.removed)
    fmt::print("{}  {}  ({})\n", removed, printable_line(d.dir.string()), bytes_text(d.bytes));
  for (const RemovedDirectory& d : report.removed_leftovers)
    fmt::print("{}  {}  ({}, a save that did not finish)\n", removed, printable_line(d.dir.string()),
               bytes_text(d.bytes));
  for (const ListedStep& s : report.damaged) fmt::print("stays, not counted: damaged: {}\n", printable_line(s.reason));
  for (const ListedStep& s : report.partial)
    fmt::print("stays: {}: a trainer may be writing it\n", printable_line(s.dir.string()));
  std::string kept;
  for (const ListedStep& s : report.kept) kept += (kept.empty() ? " " : ", ") + std::to_string(s.step);
  const bool one = report.kept.size() == 1;
  fmt::print("{} {}{}{}; {} {}\n", report.kept.size(), one ? "checkpoint stays" : "checkpoints stay",
             kept.empty() ? ""
             : one        ? ": step"
                          : ": steps",
             kept, bytes_text(report.bytes), dry_run ? "would be freed" : "freed");
}

}  // namespace

int dckpt_prune(int argc, const char* const* argv) {
  std::string path, keep_last;
  PruneOptions options;
  bool json = false, dry_run = false, verify = false;
  const CommandLine line{
      .name = "dckpt prune",
      .description = "Removes old checkpoints of a run, and what interrupted saves left.",
      .fields = {{.name = "path", .value = &path, .help = "run or checkpoints directory"},
                 {.name = "keep-last",
                  .value = &keep_last,
                  .help = "how many committed checkpoints are to stay, the newest ones: a number, at least 1"},
                 {.name = "keep-every",
                  .value = &options.retention.keep_every,
                  .help = "keep also those whose step is a multiple of it; 0: none",
                  .min = 0},
                 {.name = "verify",
                  .value = &verify,
                  .help =
                      "read every byte before counting, so that bit damage is not counted as a checkpoint that stays; "
                      "without it manifests and sizes are looked at"},
                 {.name = "dry-run", .value = &dry_run, .help = "say what would be removed, remove nothing"},
                 {.name = "json", .value = &json, .help = "print one JSON object"}},
      .positional = {"path"},
      .required = {"path", "keep-last"},
      .takes_config = false,
      .footer =
          "The newest committed checkpoint always stays. Damaged ones, those that a trainer set aside among\nthem "
          "(step-N.damaged), are not counted and stay: remove them by hand. Flipped bits are seen with --verify "
          "only.\nUnfinished saves (step-N.tmp) of a run are removed unless a trainer is at work in it.\n"
          "Example: dckpt prune runs/kjv --keep-last 3 --keep-every 1000 --dry-run"};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  options.retention.keep_last = number_of("keep-last", keep_last, 1);

  const fs::path folder = steps_folder(path);
  if (dry_run) options.action = PruneOptions::Action::plan;
  const std::optional<FileLock> lock = lock_of(folder, options.action);
  if (lock) options.leftovers = PruneOptions::Leftovers::remove;
  std::optional<ByteProgress> progress;
  if (verify) {
    int64_t total = 0;
    for (const auto& [step, dir] : step_directories(folder)) total += directory_bytes(dir);
    progress.emplace("verifying", total);
    options.check = PruneOptions::Check::every_byte;
    options.watch = {.begin = [&](const fs::path& dir) { progress->now_at(printable_line(dir.filename().string())); },
                     .progress = [&](int64_t bytes) { progress->add(bytes); }};
  }
  const PruneReport report = prune_steps(folder, options);
  progress.reset();
  if (json) {
    fmt::print("{}\n", json_line({{"path", folder.string()},
                                  {"dry_run", dry_run},
                                  {"verified", verify},
                                  {"removed", gone_json(report.removed)},
                                  {"removed_unfinished", gone_json(report.removed_leftovers)},
                                  {"kept", stay_json(report.kept)},
                                  {"damaged", stay_json(report.damaged)},
                                  {"unfinished", stay_json(report.partial)},
                                  {"bytes", report.bytes}}));
  } else {
    print_text(report, dry_run);
  }
  return 0;
}

}  // namespace rw
