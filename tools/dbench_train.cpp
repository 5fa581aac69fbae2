#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "libcore/base/log.h"
#include "libcore/bench/train/train_bench.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/steps_comm.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"
#include "tools/progress.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  mpirun -n 2 dbench train --config configs/train/kjv.toml\n"
    "  mpirun -n 4 dbench train --model tiny-llama --ladder\n"
    "  mpirun -n 4 dbench train --config big.toml --sweep-ranks 1,2,4 --scaling weak --json > scaling.jsonl\n"
    "\n"
    "Takes dtrain's flags and configurations; without --data random tokens are made. --json prints a record, or one a\n"
    "line for each rung or number of ranks, as dbench compare reads them.";

int run(int argc, const char* const* argv, Comm& job) {
  TrainBenchSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "print records on standard output", .group = "Measurement"});
  const CommandLine line{.name = "dbench train",
                         .description = "Measures training, as dtrain runs it; start it with mpirun.",
                         .fields = list,
                         .skip_tables = {"plan", "predicted"},
                         .footer = kFooter};
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;
  std::unique_ptr<Comm> asked;
  agree(job, [&] {
    if (job.size() > 1)
      asked = make_world_comm({.ranks_per_node = static_cast<int>(spec.train.ranks_per_node),
                               .all_reduce = make_all_reduce_policy(spec.train.allreduce, spec.train.comm_table)});
  });
  Comm& world = asked != nullptr ? *asked : job;
  TrainBenchAnswer answer;
  {
    std::unique_ptr<ProgressBar> bar;
    if (job.rank() == 0) bar = std::make_unique<ProgressBar>();
    TrainBenchHooks hooks;
    hooks.progress = [&](const std::string& what, double share) { bar->show("measuring", share, what); };
    hooks.warning = [&](const std::string& text) { bar->clear(), log_warning("{}", text); };
    answer = run_train_bench(spec, world, hooks);
  }
  if (job.rank() != 0) return 0;
  if (json)
    for (const BenchRecord& record : answer.records) fmt::print("{}\n", record_json(record).dump());
  else fmt::print("{}", answer.table);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int dbench_train(int argc, const char* const* argv) {
  const auto job = make_world_comm();
  set_log_rank(job->rank(), job->size());
  return run_job("dbench train", *job, [&] { return run(argc, argv, *job); });
}

}  // namespace rw
