// `dbench preflight`: a job's hosts looked over before it runs for days.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/bench/preflight/checks.h"
#include "libcore/comm/comm.h"

namespace rw {

struct PreflightSpec {
  PreflightNeeds needs;
  std::string out = ".";  // where the run will write
  std::string pairs = "auto";
  int64_t pair_bytes = 4 << 20;
  double seconds = 0.3;  // of matrix products
  double resolve_timeout = 5, comm_timeout = 60;
};
FieldList fields(PreflightSpec& spec);

// Collective: every rank looks at its host and measures with the others. The same facts on all ranks. A rank that does
// not answer is an Error that names it.
JobFacts gather_facts(Comm& comm, const PreflightSpec& spec);
// {"checks": [...], "status": "pass", "ranks": N, "hosts": [...], "facts": [...]}
Json preflight_json(const std::vector<CheckResult>& results, const JobFacts& job);

// Collective. This rank's clock minus rank 0's, from the quickest of several pings (Cristian 1989), and its round trip.
struct ClockOffset {
  double offset_s = 0, round_trip_s = 0;
};
ClockOffset measure_clock(Comm& comm);

}  // namespace rw
