#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/bench/comm/comm_bench.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/mpi_link.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  mpirun -n 2 dbench comm\n"
    "  mpirun -n 4 dbench comm -b 1K -e 64M -f 4 --op all_reduce --dtype f32 --dtype bf16 --json\n"
    "  mpirun -n 4 dbench comm --ranks-per-node 2 --tune comm.json\n"
    "\n"
    "Exit code: 0 done, 3 a result was wrong. docs/collectives.md defines the columns.";

// The short flags of nccl-tests.
std::vector<const char*> spelled_out(int argc, const char* const* argv) {
  std::vector<const char*> args(argv, argv + argc);
  for (const char*& arg : args) {
    const std::string_view a = arg;
    if (a == "-b") arg = "--min-bytes";
    if (a == "-e") arg = "--max-bytes";
    if (a == "-f") arg = "--factor";
    if (a == "-n") arg = "--iters";
    if (a == "-w") arg = "--warmup-iters";
    if (a == "-d") arg = "--dtype";
  }
  return args;
}

// What rank 0 prints, and what it adds up.
class Report {
 public:
  Report(bool prints, bool json) : prints_(prints), json_(json) {}
  void head(const Comm& comm, int nodes) {
    if (prints_ && !json_) fmt::print("{}", comm_table_head(comm.size(), nodes, comm.name()));
  }
  void add(const CommCase& c) {
    for (const auto& t : {c.out_of_place, c.in_place})
      if (t) wrong_ += t->wrong > 0 ? t->wrong : 0;
    if (!prints_) return;
    if (json_)
      for (const Json& line : comm_case_json(c)) fmt::print("{}\n", line.dump());
    else fmt::print("{}", comm_table_line(c));
    std::fflush(stdout);
  }
  int64_t wrong() const { return wrong_; }

 private:
  bool prints_, json_;
  int64_t wrong_ = 0;
};

void write_table(const std::string& file, const CommTable& table) {
  write_file_atomic(file, comm_table_json(table).dump(1) + "\n");
  log_info("{}: {} rows; use it with --comm-table {}", file, table.all_reduce.size(), file);
}

// What --tune finds is added to a table that is there already.
CommTable table_before(const std::string& file) {
  return std::filesystem::exists(file) ? read_comm_table(file) : CommTable{};
}

int run(int argc, const char* const* argv, Comm& job) {
  CommBenchSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "print JSON lines on standard output, one a timing"});
  const CommandLine line{.name = "dbench comm",
                         .description = "Times the collectives of this job's ranks; start it with mpirun.",
                         .fields = list,
                         .footer = kFooter};
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;

  std::shared_ptr<AllReducePolicy> policy;
  CommTable before;
  agree(job, [&] {
    policy = make_all_reduce_policy("auto", spec.comm_table);
    if (!spec.tune.empty()) before = table_before(spec.tune);
  });
  const auto comm = make_world_comm({.ranks_per_node = static_cast<int>(spec.ranks_per_node), .all_reduce = policy});
  Report report(job.rank() == 0, json);
  const std::vector<int> nodes = comm->nodes();
  report.head(*comm, *std::max_element(nodes.begin(), nodes.end()) + 1);
  const CommBenchJob bench{.spec = spec,
                           .comm = *comm,
                           .policy = *policy,
                           .has_library = under_launcher(),
                           .report = [&](const CommCase& c) { report.add(c); }};
  if (spec.tune.empty()) {
    agree(job, [&] { check_comm_bench(spec); });
    run_comm_bench(bench);
  } else {
    const CommTable table = replace_rows(before, tune_all_reduce(bench));
    agree(job, [&] {
      if (job.rank() == 0) write_table(spec.tune, table);
    });
  }
  if (report.wrong() > 0 && job.rank() == 0)
    log_error("dbench comm: {} wrong elements; the column #wrong says where", report.wrong());
  return report.wrong() > 0 ? exit_code(ErrorKind::verdict) : 0;
}

}  // namespace

int dbench_comm(int argc, const char* const* argv) {
  const std::vector<const char*> args = spelled_out(argc, argv);
  const auto job = make_world_comm();
  set_log_rank(job->rank(), job->size());
  return run_job("dbench comm", *job, [&] { return run(argc, args.data(), *job); });
}

}  // namespace rw
