#include <fmt/core.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "libcore/base/error.h"
#include "libcore/bench/doctor/doctor.h"
#include "libcore/bench/doctor/log_triage.h"
#include "libcore/bench/doctor/rehearsal.h"
#include "libcore/bench/doctor/serving_doctor.h"
#include "libcore/bench/doctor/serving_rules.h"
#include "libcore/bench/doctor/training_rules.h"
#include "libcore/bench/record/run_records.h"
#include "tools/cli.h"
#include "tools/dbench.h"

namespace rw {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench doctor run\n"
    "  dbench doctor run --baseline rehearsal --json\n"
    "  dbench doctor http://127.0.0.1:8000\n"
    "  dbench doctor --logs /var/log/job-17\n"
    "\n"
    "Exit: 0 nothing is a failure, 3 something is.";

struct DoctorFlags {
  std::vector<std::string> targets;
  std::string baseline, logs, api_key;
  double window_s = 5;
  bool json = false, all = false;
};

bool is_url(const std::string& target) { return target.starts_with("http://") || target.starts_with("https://"); }

// dserve --out, and no run.
bool is_server_dir(const fs::path& dir) {
  if (fs::exists(dir / "metrics.jsonl") || fs::exists(dir / "run.json")) return false;
  return fs::exists(dir / "spans.jsonl") || fs::exists(dir / "steps.jsonl") || fs::exists(dir / "events.jsonl");
}

Diagnosis examine(const DoctorFlags& flags) {
  if (!flags.logs.empty()) {
    if (!flags.targets.empty()) fail(ErrorKind::usage, "expected a target or --logs, found both");
    return triage_logs(flags.logs);
  }
  if (flags.targets.empty())
    fail(ErrorKind::usage, "expected a run directory, a server's URL or --logs DIR, found none");
  ServerTarget server{.urls = {}, .out_dir = {}, .api_key = flags.api_key, .window_s = flags.window_s};
  std::vector<std::string> runs;
  for (const std::string& target : flags.targets) {
    if (is_url(target)) server.urls.push_back(target);
    else if (is_server_dir(target) && server.out_dir.empty()) server.out_dir = target;
    else runs.push_back(target);
  }
  const bool is_server = !server.urls.empty() || !server.out_dir.empty();
  if (runs.size() + (is_server ? 1 : 0) > 1)
    fail(ErrorKind::usage,
         "expected one run directory, or the URLs of one service with at most one of its --out folders, found {} "
         "targets of other kinds",
         flags.targets.size());
  if (!is_server) return doctor_run(read_run_records(runs.front()), {.baseline = flags.baseline});
  if (!flags.baseline.empty()) fail(ErrorKind::usage, "--baseline is for training runs");
  return doctor_server(server);
}

}  // namespace

int dbench_doctor(int argc, const char* const* argv) {
  DoctorFlags flags;
  // For scripts/readme_tables.
  if (argc == 2 && std::string_view(argv[1]) == "--rules-markdown") {
    std::vector<Rule> of_runs = training_rules();
    for (const Rule& rule : rehearsal_rules()) of_runs.push_back(rule);
    fmt::print("**Runs**\n\n{}\n**Servers**\n\n{}", rules_markdown(of_runs), rules_markdown(serving_rules()));
    return 0;
  }
  const FieldList list = {
      {.name = "target", .value = &flags.targets, .help = "a run directory, a server's URL or its --out folder"},
      {.name = "baseline", .value = &flags.baseline, .help = "a small run that went well, to set this one beside"},
      {.name = "logs", .value = &flags.logs, .help = "triage the raw logs of this folder"},
      {.name = "api-key", .value = &flags.api_key, .help = "for a server that asks for one"},
      {.name = "window-s",
       .value = &flags.window_s,
       .help = "seconds between two looks at a server's counters",
       .min = 0.1,
       .max = 3600},
      {.name = "all", .value = &flags.all, .help = "show effects and infos too"},
      {.name = "json", .value = &flags.json, .help = "print one JSON object on standard output"},
  };
  const CommandLine line{.name = "dbench doctor",
                         .description = "Says what is wrong with a run, a server or a heap of logs, and what to do.",
                         .fields = list,
                         .positional = {"target"},
                         .required = {},
                         .takes_config = false,
                         .footer = kFooter};
  if (const auto code = parse_command_line(line, argc, argv)) return *code;
  const Diagnosis diagnosis = examine(flags);
  if (flags.json) fmt::print("{}\n", diagnosis_json(diagnosis).dump());
  else fmt::print("{}", diagnosis_text(diagnosis, flags.all ? DoctorText::all : DoctorText::usual));
  return has_failure(diagnosis) ? 3 : 0;
}

}  // namespace rw
