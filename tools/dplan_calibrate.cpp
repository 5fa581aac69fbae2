// dplan calibrate: a cluster's achievable fractions and links, fitted to runs of dtrain.
#include <fmt/core.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/toml_table.h"
#include "libcore/plan/measure/calibrate.h"
#include "tools/cli.h"
#include "tools/dplan.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan calibrate runs/dp1 runs/dp2 --cluster this-machine.toml -o calibrated.toml\n"
    "  dplan calibrate runs/dp1 runs/dp2 --check runs/tp2 --check runs/pp2 --cluster this-machine.toml -o "
    "calibrated.toml\n"
    "\n"
    "Runs that differ in layout, batch and ranks tell more than many of one kind. --check compares with runs that are\n"
    "not fitted to.";

Json residual_json(const std::vector<RunResidual>& runs) {
  Json all = Json::array();
  for (const RunResidual& r : runs)
    all.push_back({{"run", r.where},
                   {"layout", r.layout},
                   {"measured_s", r.measured},
                   {"predicted_before_s", r.before},
                   {"predicted_s", r.after},
                   {"error", r.after / r.measured - 1},
                   {"compute_s", {{"measured", r.compute}, {"predicted", r.compute_after}}},
                   {"communication_s", {{"measured", r.communication}, {"predicted", r.communication_after}}}});
  return all;
}

// The head of the file, as the one it was made from may have comments that are not in it. Quoted, so that no name ends
// the comment.
std::string made_from(const std::vector<std::string>& runs, const std::string& cluster) {
  std::string text = fmt::format("# fitted by dplan calibrate to {} run{} from {}; its comments are not here\n",
                                 runs.size(), runs.size() == 1 ? "" : "s", toml_quoted(cluster));
  for (const std::string& run : runs) text += fmt::format("# run {}\n", toml_quoted(run));
  return text;
}

void print_runs(const char* title, const std::vector<RunResidual>& runs) {
  if (runs.empty()) return;
  fmt::print("{:<34} {:>10} {:>10} {:>10} {:>8}\n", title, "measured s", "before", "after", "error");
  for (const RunResidual& r : runs)
    fmt::print("{:<34} {:>10.4g} {:>10.4g} {:>10.4g} {:>+7.1f} %  {}\n", r.where, r.measured, r.before, r.after,
               100 * (r.after / r.measured - 1), r.layout);
}

}  // namespace

int dplan_calibrate(int argc, const char* const* argv) {
  std::vector<std::string> runs, checks;
  std::string cluster_name, output;
  bool json = false;
  const CommandLine command{
      .name = "dplan calibrate",
      .description = "Fits a cluster's achievable fractions and links to measured runs.",
      .fields = {{.name = "run", .value = &runs, .help = "a run directory of dtrain to fit to; may repeat"},
                 {.name = "check",
                  .value = &checks,
                  .help = "a run directory to compare with, not fitted to; may repeat"},
                 {.name = "cluster",
                  .value = &cluster_name,
                  .help = "where to start: a name under configs/clusters or a .toml file"},
                 {.name = "output", .value = &output, .help = "write the fitted cluster; - is standard output"},
                 {.name = "json", .value = &json, .help = "one JSON object instead of the tables"}},
      .positional = {"run"},
      .required = {"run", "cluster"},
      .short_flags = {{"-o", "output"}},
      .footer = kFooter};
  if (const auto code = parse_command_line(command, argc, argv)) return *code;
  std::vector<MeasuredRun> measured, compared;
  for (const std::string& dir : runs) measured.push_back(read_measured_run(dir));
  for (const std::string& dir : checks) compared.push_back(read_measured_run(dir));
  const Calibration c = calibrate(load_cluster_spec(cluster_name), measured);
  const std::vector<RunResidual> checked = compare_runs(c.cluster, compared);
  std::vector<std::string> notes = c.notes;
  for (const MeasuredRun& run : compared) notes.insert(notes.end(), run.notes.begin(), run.notes.end());
  const std::string toml = made_from(runs, cluster_name) + cluster_toml(c.cluster);
  if (output == "-") fmt::print("{}", toml);
  else if (!output.empty()) write_file_atomic(output, toml);
  for (const std::string& note : notes) fmt::print(stderr, "dplan calibrate: {}\n", note);
  if (output == "-") return 0;
  if (json) {
    Json numbers = Json::object();
    for (const FittedNumber& n : c.numbers) numbers[n.name] = {{"before", n.before}, {"after", n.after}};
    fmt::print("{}\n", Json{{"numbers", numbers},
                            {"runs", residual_json(c.runs)},
                            {"checks", residual_json(checked)},
                            {"mean_error_before", c.mean_error_before},
                            {"mean_error", c.mean_error_after},
                            {"notes", notes}}
                           .dump());
    return 0;
  }
  for (const FittedNumber& n : c.numbers) fmt::print("{:<20} {:>12.4g} -> {:.4g}\n", n.name, n.before, n.after);
  print_runs("fitted to", c.runs);
  print_runs("compared with", checked);
  fmt::print("mean error of the fitted runs: {:.1f} % before, {:.1f} % after\n", 100 * c.mean_error_before,
             100 * c.mean_error_after);
  return 0;
}

}  // namespace rw
