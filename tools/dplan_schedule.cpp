// dplan schedule: a pipeline's timeline, drawn, with the memory that stages hold over it.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/plan/draw/planned_schedule.h"
#include "libcore/plan/draw/schedule_svg.h"
#include "tools/dplan.h"
#include "tools/dplan_config.h"

namespace rw {
namespace {

constexpr int kColumns = 160;  // of a timeline in letters
constexpr const char* kFooter =
    "Examples:\n"
    "  dplan schedule --schedule zb-h1 --pp 4 --micro-batches 8 --svg out.svg\n"
    "  dplan schedule --schedule interleaved --pp 4 --vpp 2 --micro-batches 8 --forward-ms 1.2 --backward-ms 2.5\n"
    "  dplan schedule --config plan.toml --cluster h100-sxm --svg out.svg\n"
    "\n"
    "Without a model: equal stages. With one: the planned step of --config, or of the best plan for the flags.";

struct EvenFlags {
  int64_t micro_batches = 0;
  double forward_ms = 1, backward_ms = 2, message_ms = 0;
};

FieldList fields(EvenFlags& f) {
  const auto ms = [](const char* name, double* value, const char* help) {
    return Field{.name = name, .value = value, .help = help, .min = 0, .max = 1e9, .group = "Equal stages"};
  };
  return {{.name = "micro-batches",
           .value = &f.micro_batches,
           .help = "of a step; 0: twice the stages",
           .min = 0,
           .max = 1 << 16,
           .group = "Equal stages"},
          ms("forward-ms", &f.forward_ms, "of a micro-batch through a stage, all its chunks"),
          ms("backward-ms", &f.backward_ms, "the same; half of it is the weights' gradients"),
          ms("message-ms", &f.message_ms, "between neighbouring stages")};
}

void refuse_even_flags(EvenFlags given) {
  EvenFlags usual;
  const FieldList list = fields(given), defaults = fields(usual);
  for (size_t i = 0; i < list.size(); ++i)
    if (field_text(list[i]) != field_text(defaults[i]))
      fail(ErrorKind::usage, "--{} is for equal stages: with --model the plan says it", list[i].name);
}

ScheduleView even_view(const PlanSpec& spec, const EvenFlags& f) {
  PipelineShape shape{.kind = ScheduleKind::one_f_one_b,
                      .stages = static_cast<int>(std::max<int64_t>(1, spec.pp)),
                      .chunks = static_cast<int>(std::max<int64_t>(1, spec.vpp)),
                      .micro_batches = 0};
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved, ScheduleKind::zb_h1})
    if (spec.schedule == schedule_name(kind)) shape.kind = kind;
  shape.micro_batches = static_cast<int>(f.micro_batches > 0 ? f.micro_batches : 2 * shape.stages);
  if (action_count(shape) > kMostDrawnActions)
    fail(ErrorKind::usage, "--pp {} x --vpp {} x --micro-batches {} are {} actions: expected at most {}", shape.stages,
         shape.chunks, shape.micro_batches, action_count(shape), kMostDrawnActions);
  if (shape.kind == ScheduleKind::one_f_one_b && shape.chunks > 1)
    fail(ErrorKind::usage, "--schedule 1f1b with --vpp {}: expected --schedule interleaved for several chunks",
         shape.chunks);
  if (!(f.forward_ms + f.backward_ms > 0))
    fail(ErrorKind::usage, "--forward-ms {} and --backward-ms {}: expected one above 0", f.forward_ms, f.backward_ms);
  ScheduleView view = even_schedule({.shape = shape,
                                     .forward_s = f.forward_ms / 1e3,
                                     .backward_s = f.backward_ms / 1e3,
                                     .message_s = f.message_ms / 1e3});
  view.title = fmt::format("equal stages: forward {} ms, backward {} ms, message {} ms", f.forward_ms, f.backward_ms,
                           f.message_ms);
  return view;
}

}  // namespace

int dplan_schedule(int argc, const char* const* argv) {
  PlanFlags flags;
  EvenFlags even;
  std::string svg;
  bool json = false;
  FieldList list = fields(flags, {"top", "tokens"});
  for (const Field& f : fields(even)) list.push_back(f);
  list.push_back(
      {.name = "svg", .value = &svg, .help = "draw it into this file; - is standard output", .group = "Output"});
  list.push_back({.name = "json",
                  .value = &json,
                  .help = "one JSON object instead of the table: every action with its times",
                  .group = "Output"});
  const CommandLine line{.name = "dplan schedule",
                         .description = "The timeline of a pipeline's step, and the memory under it.",
                         .fields = list,
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_plan_command(line, flags, argc, argv)) return *code;
  if (svg == "-" && json) fail(ErrorKind::usage, "--svg - and --json both go to standard output; name a file for one");
  ScheduleView view;
  if (flags.spec.model.empty()) {
    view = even_view(flags.spec, even);
  } else {
    refuse_even_flags(even);
    const PlanInputs inputs(flags.spec);
    view = planned_schedule(inputs, chosen_plan(inputs, {.from_file = flags.from_file(),
                                                         .stage_layers = flags.stage_layers,
                                                         .keep_timeline = true}));
  }
  if (svg == "-") {
    fmt::print("{}", schedule_svg(view));
    return 0;
  }
  if (!svg.empty()) write_file_atomic(svg, schedule_svg(view));
  if (json) fmt::print("{}\n", schedule_json(view).dump());
  else fmt::print("{}", schedule_text(view, kColumns));
  return 0;
}

}  // namespace rw
