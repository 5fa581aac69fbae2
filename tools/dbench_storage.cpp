#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/base/log.h"
#include "libcore/bench/disk/rank_rates.h"
#include "libcore/bench/disk/storage_bench.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  dbench storage --dir /data --size 4G\n"
    "  mpirun -n 4 dbench storage --dir /shared --size 1G --json\n"
    "\n"
    "GB/s are 1e9 bytes. Of several ranks, a rate is all ranks' together, over the time of the slowest.";

int run(int argc, const char* const* argv, Comm& job) {
  StorageSpec spec;
  bool json = false;
  CommandLine line{.name = "dbench storage",
                   .description = "Measures the file system under a folder: large files, small files, many ranks.",
                   .fields = fields(spec)};
  line.fields.push_back({.name = "json", .value = &json, .help = "print a record on standard output"});
  line.takes_config = false;
  line.footer = kFooter;
  line.is_cpu_alone = true;
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;
  ProgressBar bar;
  const bool prints = job.rank() == 0;
  const BenchRecord record = run_storage_bench({.spec = spec, .comm = job, .progress = [&](const std::string& what) {
                                                  if (prints) bar.show("measuring", -1, what);
                                                }});
  bar.clear();
  if (!prints) return 0;
  if (json) fmt::print("{}\n", record_json(record).dump());
  else fmt::print("{}: {}\n{}", record.bench, record.name, metric_table(record));
  if (parse_json(record.details, "details").value("files_stay_in_memory", false))
    log_warning("{}: files stay in memory there: what a cold read takes cannot be measured", spec.dir);
  if (!record.quiet) log_warning("the machine was not quiet: others used its CPUs meanwhile");
  return 0;
}

}  // namespace

int dbench_storage(int argc, const char* const* argv) {
  const auto job = make_world_comm();
  set_log_rank(job->rank(), job->size());
  return run_job("dbench storage", *job, [&] { return run(argc, argv, *job); });
}

}  // namespace rw
