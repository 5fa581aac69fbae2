// dplan ckpt: how often to save, and what saves and failures cost.
#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/plan/long_run/checkpoint_plan.h"
#include "tools/dplan.h"
#include "tools/dplan_config.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dplan ckpt --model llama-3.1-405b --cluster h100-sxm --nodes 2048 --bandwidth 100e9 --step-time 25\n"
    "  dplan ckpt --config plan.toml --cluster h100-sxm --bandwidth 10e9 --tokens 1e12\n"
    "\n"
    "The interval is that of dtrain --checkpoint-every auto.";

}  // namespace

int dplan_ckpt(int argc, const char* const* argv) {
  PlanFlags flags;
  CheckpointTerms terms;
  bool json = false;
  FieldList list = fields(flags, {"top"});
  for (const Field& f : fields(terms)) list.push_back(f);
  list.push_back({.name = "json", .value = &json, .help = "one JSON object instead of the table", .group = "Output"});
  const CommandLine line{.name = "dplan ckpt",
                         .description = "The best interval between checkpoints, and the goodput that is left.",
                         .fields = list,
                         .required = {},
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_plan_command(line, flags, argc, argv)) return *code;
  PlanSpec& spec = flags.spec;
  // Without a batch there is no layout to look for: the bytes alone are known.
  const bool has_layout = spec.global_batch > 0;
  if (!has_layout) spec.global_batch = 1;
  const PlanInputs inputs(spec);
  std::optional<Prediction> plan;
  if (has_layout) plan = chosen_plan(inputs, {.from_file = flags.from_file(), .stage_layers = flags.stage_layers});
  const CheckpointPlan answer = plan_checkpoints({.model = inputs.model(),
                                                  .cluster = inputs.cluster(),
                                                  .terms = terms,
                                                  .layout = plan ? &plan->layout : nullptr,
                                                  .step_s = plan ? plan->step_s : 0,
                                                  .tokens = spec.tokens});
  if (json) {
    Json out = checkpoint_plan_json(answer);
    out["model"] = spec.model;
    out["cluster"] = inputs.cluster().name;
    out["layout"] = plan ? Json(plan->layout.text()) : Json();
    fmt::print("{}\n", out.dump());
  } else {
    if (plan) fmt::print("{:<22}{}\n", "layout", plan->layout.text());
    fmt::print("{}", checkpoint_plan_text(answer));
  }
  return 0;
}

}  // namespace rw
