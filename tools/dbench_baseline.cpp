#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/printable.h"
#include "libcore/bench/record/baseline.h"
#include "tools/cli.h"
#include "tools/dbench.h"
#include "tools/subcommands.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench kernels --model gpt2-124m --json > run.json && dbench baseline save run.json\n"
    "  dbench baseline save again.json --append\n"
    "  dbench baseline list\n"
    "\n"
    "Files are DIR/<machine>/<bench>/<case>.json: keep them in version control; a new baseline is a reviewed change.";

Field dir_field(std::string* dir) { return {.name = "dir", .value = dir, .help = "the directory of the baselines"}; }

int save(int argc, const char* const* argv) {
  std::vector<std::string> files;
  SaveBaseline save;
  save.noisy = false;
  std::string dir = "benchmarks";
  const CommandLine line{
      .name = "dbench baseline save",
      .description = "Keeps records as what later measurements on this machine are compared with.",
      .fields = {{.name = "files", .value = &files, .help = "what --json of a subcommand printed; - is standard input"},
                 dir_field(&dir),
                 {.name = "as",
                  .value = &save.as,
                  .help = "keep them under this name of the case in the place of their own"},
                 {.name = "replace", .value = &save.replace, .help = "give up the baseline that is there"},
                 {.name = "append", .value = &save.append, .help = "add these to the runs that are there"},
                 {.name = "noisy", .value = &save.noisy, .help = "keep records of a machine that was not quiet too"}},
      .positional = {"files"},
      .takes_config = false,
      .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (files.empty()) fail(ErrorKind::usage, "expected FILE..., found none");
  if (save.replace && save.append) fail(ErrorKind::usage, "expected --replace or --append, found both");
  save.dir = dir;
  std::vector<BenchRecord> records;
  for (const std::string& file : files) {
    std::vector<BenchRecord> more = read_records(file);
    records.insert(records.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  for (const auto& file : save_baseline(std::move(records), save)) fmt::print("{}\n", file.string());
  return 0;
}

int list(int argc, const char* const* argv) {
  std::string dir = "benchmarks";
  bool json = false;
  const CommandLine line{
      .name = "dbench baseline list",
      .description = "The baselines that are kept, by machine.",
      .fields = {dir_field(&dir), {.name = "json", .value = &json, .help = "a JSON array instead of the table"}},
      .takes_config = false,
      .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  const std::vector<Baseline> baselines = read_baselines(dir);
  if (json) fmt::print("{}\n", baselines_json(baselines).dump());
  else fmt::print("{}", printable(baselines_text(baselines)));
  return 0;
}

const Subcommand kSubcommands[] = {
    {"list", "what is kept, by machine", list},
    {"save", "keep records as a baseline", save},
};

}  // namespace

int dbench_baseline(int argc, const char* const* argv) {
  return run_subcommand("dbench baseline", kSubcommands, argc, argv);
}

}  // namespace rw
