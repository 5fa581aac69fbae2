#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/printable.h"
#include "libcore/bench/record/baseline.h"
#include "libcore/bench/record/compare.h"
#include "tools/cli.h"
#include "tools/dbench.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench compare before.json after.json\n"
    "  dbench compare before.json after.json --metric step_s --metric 'kernel.gemm*' --threshold 3%\n"
    "  dbench compare --baseline benchmarks after.json --json\n"
    "\n"
    "A file holds what --json of another subcommand printed; runs of one command appended to one file are its "
    "samples.\n"
    "Exit code 3: a regression. 2: nothing to compare, or measured on different machines.";

}  // namespace

int dbench_compare(int argc, const char* const* argv) {
  CompareSpec spec;
  CompareView view;
  std::vector<std::string> files;
  std::string baseline, as;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back(
      {.name = "files", .value = &files, .help = "BASE NEW...; with --baseline NEW...; - is standard input"});
  list.push_back(
      {.name = "baseline", .value = &baseline, .help = "directory of dbench baseline: this machine's is the base"});
  list.push_back({.name = "as", .value = &as, .help = "with --baseline: the name that it was saved under"});
  list.push_back({.name = "facts", .value = &view.facts, .help = "show what is not judged too"});
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table"});
  const CommandLine line{
      .name = "dbench compare",
      .description = "Are new measurements as good as the old ones? Better, same, worse or too noisy.",
      .fields = list,
      .positional = {"files"},
      .short_flags = {{"-v", "facts"}},
      .takes_config = false,
      .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  const size_t first_new = baseline.empty() ? 1 : 0;
  if (files.size() <= first_new)
    fail(ErrorKind::usage, "expected {}, found {} file{}",
         baseline.empty() ? "BASE NEW..." : "NEW... beside --baseline", files.size(), files.size() == 1 ? "" : "s");
  if (!as.empty() && baseline.empty()) fail(ErrorKind::usage, "--as goes with --baseline");
  parse_threshold(spec.threshold);

  const std::vector<BenchRecord> base = baseline.empty() ? read_records(files[0]) : std::vector<BenchRecord>();
  const std::vector<Baseline> baselines = baseline.empty() ? std::vector<Baseline>() : read_baselines(baseline);
  std::vector<Comparison> comparisons;
  for (size_t i = first_new; i < files.size(); ++i) {
    std::vector<BenchRecord> now = read_records(files[i]);
    if (!as.empty())
      for (BenchRecord& r : now) r.name = as;
    comparisons.push_back(
        compare_records(baseline.empty() ? base : matching_baselines(baselines, now, spec.any_machine), now, spec));
    comparisons.back().base = baseline.empty() ? files[0] : baseline;
    comparisons.back().now = files[i];
  }
  bool regression = false;
  Json all = Json::array();
  for (const Comparison& c : comparisons) {
    regression = regression || c.has_regression();
    if (json) all.push_back(comparison_json(c));
    else fmt::print("{}\n", printable(comparison_text(c, view)));
  }
  const std::string summary = comparison_summary(comparisons);
  if (json) fmt::print("{}\n", Json{{"regression", regression}, {"summary", summary}, {"comparisons", all}}.dump());
  else fmt::print("{}\n", printable(summary));
  return regression ? exit_code(ErrorKind::verdict) : 0;
}

}  // namespace rw
