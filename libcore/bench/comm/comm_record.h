// What `dbench comm --json` leaves: one BenchRecord, whose details are the table's rows, the fits and the pairs.
#pragma once
#include <optional>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/comm/comm_bench.h"
#include "libcore/bench/comm/job_quiet.h"
#include "libcore/bench/comm/link_report.h"
#include "libcore/bench/comm/pair_matrix.h"
#include "libcore/bench/record/bench_record.h"

namespace rw {

struct CommFindings {
  CommBenchSpec spec;
  std::string comm;            // its name
  std::string device = "cpu";  // the first rank's
  int ranks = 1, nodes = 1;
  std::vector<CommCase> cases;
  LinkFits fits;
  std::optional<PairReport> pairs;
  JobQuiet quiet;
};
// Metrics, each a sample a block: comm.OP.WAY.BYTES.TYPE.us; of private memory (of other ways than mpi-blocking and
// pair) ".private" follows the type, of all_gather within a buffer ".in_place", of the pairs of a job of several nodes
// ".node" or ".network". Exact: ...sent_bytes and ...sent_messages of step lists, and ...wrong where results were
// checked. Of the pairs comm.pair.A-B.latency_us and .gb_s.
BenchRecord comm_record(const CommFindings& found);
// Of all cases, as comm_case_json.
std::vector<Json> comm_rows(const std::vector<CommCase>& cases);

}  // namespace rw
