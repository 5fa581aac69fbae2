// dplan scale: the best plan at each number of nodes, the law through them, and what bends it.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/plan/long_run/scale.h"
#include "tools/cli.h"
#include "tools/dplan.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan scale --model llama-3-70b --cluster h100-sxm --nodes 2..256 --global-batch 2048 --seq-len 4096\n"
    "  dplan scale --model llama-3-8b --cluster h100-sxm --nodes 1,2,6 --batch-per-device 4 --tp 2\n"
    "  dplan scale --measured runs.csv        (columns n, step_time_s, and tokens where steps differ)\n"
    "\n"
    "Exit code 3: nothing fits at any size.";

int fit_measured(const std::string& file, bool json) {
  const std::vector<ScalingPoint> points = parse_scaling_points(read_file(file), file);
  const ScalingFit fit = fit_scaling(points);
  const double from =
      std::min_element(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.n < b.n; })->n;
  if (json) {
    Json rows = Json::array();
    for (const ScalingPoint& p : points)
      rows.push_back({{"n", p.n}, {"seconds", p.seconds}, {"fitted", fit.law.seconds(p.n)}});
    fmt::print("{}\n", Json{{"points", rows}, {"fit", scaling_fit_json(fit, from)}}.dump());
    return 0;
  }
  fmt::print("{:>8} {:>12} {:>12} {:>8}\n", "N", "seconds", "by the law", "off");
  for (const ScalingPoint& p : points)
    fmt::print("{:>8g} {:>12.5g} {:>12.5g} {:>6.1f} %\n", p.n, p.seconds, fit.law.seconds(p.n),
               100 * (fit.law.seconds(p.n) / p.seconds - 1));
  fmt::print("\n{}", scaling_fit_text(fit, from));
  return 0;
}

}  // namespace

int dplan_scale(int argc, const char* const* argv) {
  PlanSpec spec;
  std::string nodes = "1..64", measured;
  int64_t batch_per_device = 0;
  bool json = false;
  FieldList list = fields(spec);
  list.erase(std::remove_if(list.begin(), list.end(),
                            [](const Field& f) { return f.name == "nodes" || f.name == "top" || f.name == "tokens"; }),
             list.end());
  list.push_back({.name = "nodes",
                  .value = &nodes,
                  .help = "sizes: 1..64 (each twice the one before), 1,2,6, or both",
                  .group = "Work"});
  list.push_back({.name = "batch-per-device",
                  .value = &batch_per_device,
                  .help = "weak scaling: samples of a step per device, in the place of --global-batch",
                  .min = 0,
                  .max = 1 << 20,
                  .group = "Work"});
  list.push_back({.name = "measured",
                  .value = &measured,
                  .help = "fit the law to measured steps instead: a .csv or .json file with n and step_time_s",
                  .group = "Work"});
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table", .group = "Output"});
  const CommandLine line{.name = "dplan scale",
                         .description = "How a training's speed grows with the nodes, and what bends it.",
                         .fields = list,
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  if (!measured.empty()) return fit_measured(measured, json);
  if ((batch_per_device > 0) == (spec.global_batch > 0))
    fail(ErrorKind::usage,
         "expected either --global-batch (the same step at every size) or --batch-per-device (a step that grows), "
         "found {}",
         batch_per_device > 0 ? "both" : "neither");
  if (batch_per_device > 0) spec.global_batch = batch_per_device;  // set for each size
  ProgressBar bar;
  const ScaleAnswer answer =
      scale_plans({.spec = spec, .nodes = parse_node_list(nodes), .batch_per_device = batch_per_device},
                  [&](int64_t n) { bar.show("planning", -1, fmt::format("{} nodes", n)); });
  bar.clear();
  const bool any = std::any_of(answer.rows.begin(), answer.rows.end(), [](const ScaleRow& r) { return r.plan; });
  if (json) fmt::print("{}\n", scale_json(answer).dump());
  else fmt::print("{}", scale_text(answer));
  if (any) return 0;
  fmt::print(stderr, "dplan scale: nothing fits at any of these sizes\n");
  return exit_code(ErrorKind::verdict);
}

}  // namespace rw
