#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "libcore/base/error.h"
#include "libcore/base/log.h"
#include "libcore/bench/preflight/preflight.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  mpirun -n 2 dbench preflight\n"
    "  mpirun --host a:8,b:8 -n 16 dbench preflight --out /data/run --min-disk 500G --min-memory 20G\n"
    "\n"
    "Exit code: 0 nothing failed (warnings included), 3 a check failed. docs/preflight.md says what each asks and why.";

int run(int argc, const char* const* argv, Comm& job) {
  PreflightSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "print one JSON object on standard output"});
  const CommandLine line{
      .name = "dbench preflight",
      .description = "Looks over this job's hosts before a long run; start it with the run's mpirun.",
      .fields = list,
      .footer = kFooter};
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;
  const JobFacts facts = gather_facts(job, spec);
  const std::vector<CheckResult> results = run_checks(facts, spec.needs);
  if (job.rank() == 0) fmt::print("{}", json ? preflight_json(results, facts).dump() + "\n" : checks_text(results));
  return worst_status(results) == CheckStatus::fail ? exit_code(ErrorKind::verdict) : 0;
}

}  // namespace

int dbench_preflight(int argc, const char* const* argv) {
  const auto job = make_world_comm();
  set_log_rank(job->rank(), job->size());
  return run_job("dbench preflight", *job, [&] { return run(argc, argv, *job); });
}

}  // namespace rw
