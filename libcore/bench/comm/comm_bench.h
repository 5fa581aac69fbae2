// `dbench comm`: what the communicator of a job reaches, operation by operation, way by way, size by size.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/comm/comm_table.h"
#include "libcore/comm/comm.h"
#include "libcore/comm/steps_comm.h"
#include "libcore/device/device.h"

namespace rw {

struct CommBenchSpec {
  std::vector<std::string> op, way, dtype = {"f32"};  // op, way: none means all
  std::string device = "cpu", memory = "both";
  int64_t min_bytes = 1 << 10, max_bytes = 64 << 20;
  double factor = 2;
  int64_t iters = 20, warmup_iters = 5, repeats = 5, calls = 0;
  bool check = true, rewrite = false;
  int64_t ranks_per_node = 0;
  double comm_timeout = 300;
  std::string comm_table, tune;
  std::string pairs = "none";  // pair_matrix.h
  int64_t pair_bytes = 4 << 20;
  std::string cluster_fragment, cluster;  // link_report.h
};
FieldList fields(CommBenchSpec& spec);

struct CommBenchJob {
  const CommBenchSpec& spec;
  Comm& comm;
  AllReducePolicy& policy;                      // of comm; changed from case to case
  bool has_library = false;                     // the job runs under MPI: its blocking collectives can be called
  std::function<void(const CommCase&)> report;  // on every rank; the same timings on all
  Device* device = nullptr;                     // of comm's memory, and then there is one way; null: the host's
};
// Samples of a case are taken in `repeats` blocks; the blocks of all ways of an operation and size take turns, so that
// what comes and goes on the machine meets them all.
// Error{usage} for an unknown op, way or type.
void check_comm_bench(const CommBenchSpec& spec);
// Collective.
void run_comm_bench(const CommBenchJob& job);

// Of ways whose blocks were taken in turns: which to take where `now` is taken so far. Another one only where it is
// faster by 3 % and in three of four blocks: a table must not follow noise.
size_t worth_taking(const std::vector<CommTiming>& ways, size_t now);
// Collective. Measures the ways of all_reduce (f32, in place, memory of allocate) and keeps for each size the one that
// is worth_taking, beside the smaller sizes' way, at first beside direct; step lists also with smaller and larger
// segments. On one node hierarchical is direct, and is measured only when --way asks for it.
std::vector<CommTableRow> tune_all_reduce(const CommBenchJob& job);
// The rows of `table` for other jobs, and these.
CommTable replace_rows(const CommTable& table, const std::vector<CommTableRow>& rows);

}  // namespace rw
