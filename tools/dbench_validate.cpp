#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/bench/train/validate.h"
#include "tools/cli.h"
#include "tools/dbench.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench validate --config configs/bench/validate.toml\n"
    "  dbench validate --config configs/bench/validate.toml --baseline baselines --save\n"
    "\n"
    "Starts training and servers itself. Exit code: 0 every stage passed or warned, 3 a stage failed.";

Json stage_json(const StageResult& s) {
  Json records = Json::array();
  for (const BenchRecord& r : s.records) records.push_back(record_json(r));
  return {{"stage", s.name},
          {"verdict", stage_verdict_name(s.verdict)},
          {"seconds", s.seconds},
          {"notes", s.notes},
          {"records", records}};
}

}  // namespace

int dbench_validate(int argc, const char* const* argv) {
  ValidateSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back(
      {.name = "json", .value = &json, .help = "print stages and records as one JSON object", .group = "Job"});
  const CommandLine line{.name = "dbench validate",
                         .description = "The small check before a big deployment: trains and serves a small model.",
                         .fields = list,
                         .footer = kFooter,
                         .is_cpu_alone = true};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  std::vector<StageResult> stages;
  {
    ProgressBar bar;
    stages = run_validate(
        {.spec = spec,
         .programs = std::filesystem::read_symlink("/proc/self/exe").parent_path(),
         .progress = [&](const std::string& stage, const std::string& what) { bar.show(stage, -1, what); }});
  }
  const StageVerdict worst = worst_verdict(stages);
  if (json) {
    Json all = Json::array();
    for (const StageResult& s : stages) all.push_back(stage_json(s));
    fmt::print("{}\n", Json{{"verdict", stage_verdict_name(worst)}, {"stages", all}}.dump());
  } else {
    fmt::print("{}{}\n", validate_table(stages), stage_verdict_name(worst));
  }
  std::fflush(stdout);
  save_validation(spec, stages);
  return worst == StageVerdict::fail ? exit_code(ErrorKind::verdict) : 0;
}

}  // namespace rw
