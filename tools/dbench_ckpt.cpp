#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "libcore/base/log.h"
#include "libcore/bench/disk/checkpoint_bench.h"
#include "libcore/bench/disk/rank_rates.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  mpirun -n 2 dbench ckpt --size 512M --dir /data\n"
    "  mpirun -n 4 dbench ckpt --model gpt2-124m --dir /shared --json\n"
    "  mpirun -n 4 dbench ckpt --tier local --ranks-per-node 2\n"
    "\n"
    "blocking_s is all that training waits for; memcpy_s, a plain copy of the same bytes, is what it cannot be below.";

int run(int argc, const char* const* argv, Comm& job) {
  CheckpointBenchSpec spec;
  bool json = false;
  CommandLine line{.name = "dbench ckpt",
                   .description = "Measures saving and reading checkpoints, beside memory copies and raw files.",
                   .fields = fields(spec)};
  line.fields.push_back({.name = "json", .value = &json, .help = "print a record on standard output"});
  line.takes_config = false;
  line.footer = kFooter;
  line.is_cpu_alone = true;
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;
  const auto comm = make_world_comm({.ranks_per_node = static_cast<int>(spec.ranks_per_node)});
  ProgressBar bar;
  const bool prints = job.rank() == 0;
  const BenchRecord record =
      run_checkpoint_bench({.spec = spec, .comm = *comm, .progress = [&](const std::string& what) {
                              if (prints) bar.show("measuring", -1, what);
                            }});
  bar.clear();
  if (!prints) return 0;
  if (json) fmt::print("{}\n", record_json(record).dump());
  else fmt::print("{}: {}\n{}", record.bench, record.name, metric_table(record));
  if (!record.quiet) log_warning("the machine was not quiet: others used its CPUs meanwhile");
  return 0;
}

}  // namespace

int dbench_ckpt(int argc, const char* const* argv) {
  const auto job = make_world_comm();
  set_log_rank(job->rank(), job->size());
  return run_job("dbench ckpt", *job, [&] { return run(argc, argv, *job); });
}

}  // namespace rw
