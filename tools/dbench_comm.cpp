#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "libcore/base/clock.h"
#include "libcore/base/error.h"
#include "libcore/base/files.h"
#include "libcore/base/log.h"
#include "libcore/bench/comm/comm_record.h"
#include "libcore/comm/agree.h"
#include "libcore/comm/mpi_link.h"
#include "libcore/comm/nccl_comm.h"
#include "libcore/comm/rank_cores.h"
#include "libcore/spec/cluster_spec.h"
#include "tools/dbench.h"
#include "tools/job_command_line.h"

namespace rw {
namespace {

constexpr const char* kFooter =
    "Examples:\n"
    "  mpirun -n 2 dbench comm\n"
    "  mpirun -n 4 dbench comm -b 1K -e 64M -f 4 --op all_reduce --dtype f32 --dtype bf16 --json\n"
    "  mpirun -n 4 dbench comm --ranks-per-node 2 --tune=comm.json\n"
    "  mpirun -n 8 dbench comm --device cuda\n"
    "  mpirun -n 4 dbench comm --op send_recv --pairs alone --cluster h100-sxm --cluster-fragment here.toml\n"
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

// What is found, and what rank 0 prints of it on the way: a table for people, line by line.
class Report {
 public:
  Report(bool prints, bool json) : shows_table_(prints && !json) {}
  void head(const Comm& comm, int nodes) const {
    if (shows_table_) fmt::print("{}", comm_table_head(comm.size(), nodes, comm.name()));
  }
  void add(const CommCase& c) {
    for (const auto& t : {c.out_of_place, c.in_place})
      if (t) wrong_ += t->wrong > 0 ? t->wrong : 0;
    cases_.push_back(c);
    show(comm_table_line(c));
  }
  void show(const std::string& text) const {
    if (!shows_table_) return;
    fmt::print("{}", text);
    std::fflush(stdout);
  }
  int64_t wrong() const { return wrong_; }
  const std::vector<CommCase>& cases() const { return cases_; }

 private:
  bool shows_table_;
  int64_t wrong_ = 0;
  std::vector<CommCase> cases_;
};

void write_table(const std::string& file, const CommTable& table) {
  write_file_atomic(file, comm_table_json(table).dump(1) + "\n");
  log_info("{}: {} rows; use it with --comm-table {}", file, table.all_reduce.size(), file);
}

// What --tune finds is added to a table that is there already.
CommTable table_before(const std::string& file) {
  if (!std::filesystem::exists(file)) return {};
  if (!std::filesystem::is_regular_file(file))
    fail(ErrorKind::usage, "--tune {}: expected a file, or none yet, found a device, a pipe or a folder", file);
  return read_comm_table(file);
}

// What is written at the end, looked at before the measurement.
void check_outputs(const CommBenchSpec& spec) {
  for (const std::string& file : {spec.cluster_fragment, spec.tune}) {
    if (file.empty()) continue;
    const std::filesystem::path path = std::filesystem::absolute(file);
    if (std::filesystem::is_directory(path) || !std::filesystem::is_directory(path.parent_path()))
      fail(ErrorKind::usage, "{}: expected a file in a folder that is there", file);
  }
  if (!spec.cluster.empty()) load_cluster_spec(spec.cluster);
}

// Rank 0: fits, pairs, files, the record.
void finish(CommFindings& found, const Report& report, bool json) {
  found.fits = fit_links(comm_rows(found.cases), found.quiet.is_quiet);
  report.show(link_text(found.fits));
  if (found.pairs) report.show(pair_text(*found.pairs));
  const CommBenchSpec& spec = found.spec;
  if (!spec.cluster_fragment.empty())
    write_file_atomic(spec.cluster_fragment, spec.cluster.empty() ? cluster_fragment(found.fits)
                                                                  : cluster_with_links(spec.cluster, found.fits));
  if (json) fmt::print("{}\n", record_json(comm_record(found)).dump());
  if (!found.quiet.is_quiet)
    log_warning("the machine was not quiet: others took {:.0f} % of its CPUs; run again when it is idle",
                100 * found.quiet.others_share);
}

int run(int argc, const char* const* argv, Comm& job) {
  CommBenchSpec spec;
  bool json = false;
  FieldList list = fields(spec);
  list.push_back({.name = "json", .value = &json, .help = "print one JSON record on standard output"});
  const CommandLine line{.name = "dbench comm",
                         .description = "Times the collectives of this job's ranks; start it with mpirun.",
                         .fields = list,
                         .footer = kFooter};
  if (const auto code = parse_job_command_line(line, argc, argv, job)) return *code;

  std::shared_ptr<AllReducePolicy> policy;
  CommTable before;
  agree(job, [&] {
    policy = make_all_reduce_policy("auto", spec.comm_table);
    check_outputs(spec);
    if (!spec.tune.empty()) before = table_before(spec.tune);
  });
  const auto host = make_world_comm({.ranks_per_node = static_cast<int>(spec.ranks_per_node), .all_reduce = policy});
  std::unique_ptr<Device> device;
  agree(job, [&] {
    check_comm_bench(spec);
    device = open_device({.device = spec.device, .local_rank = rank_on_host(*host)});
  });
  devices_of_ranks(*host, *device);
  const std::unique_ptr<Comm> on_device = device_comm(*host, *device);
  Comm* const comm = on_device ? on_device.get() : host.get();
  Report report(job.rank() == 0, json);
  const std::vector<int> nodes = comm->nodes();
  CommFindings found{.spec = spec,
                     .comm = comm->name(),
                     .device = device->name(),
                     .ranks = comm->size(),
                     .nodes = *std::max_element(nodes.begin(), nodes.end()) + 1,
                     .cases = {},
                     .fits = {},
                     .pairs = {},
                     .quiet = {}};
  report.head(*comm, found.nodes);
  const CommBenchJob bench{.spec = spec,
                           .comm = *comm,
                           .policy = *policy,
                           .has_library = under_launcher(),
                           .report = [&](const CommCase& c) { report.add(c); },
                           .device = on_device ? device.get() : nullptr};
  QuietMeter meter(0);
  meter.start();
  const double start = now_s();
  if (spec.tune.empty()) {
    run_comm_bench(bench);
  } else {
    const CommTable table = replace_rows(before, tune_all_reduce(bench));
    agree(job, [&] {
      if (job.rank() == 0) write_table(spec.tune, table);
    });
  }
  if (spec.pairs != "none") {
    found.pairs = {.hosts = comm->hosts(), .at_once = spec.pairs == "rounds", .bytes = spec.pair_bytes};
    found.pairs->pairs = measure_pairs({.comm = *comm, .at_once = found.pairs->at_once, .bytes = spec.pair_bytes});
  }
  meter.stop();
  found.quiet = judge_job_quiet(*comm, meter, now_s() - start);
  found.cases = report.cases();
  agree(job, [&] {
    if (job.rank() == 0) finish(found, report, json);
  });
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
