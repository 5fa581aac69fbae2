// Whether a job of several processes had its hosts to itself while it measured.
#pragma once
#include "libcore/bench/record/machine.h"
#include "libcore/comm/comm.h"

namespace rw {

struct JobQuiet {
  double cpu_share = 1;     // CPU over wall seconds, of the rank that got least: ranks that wait sleep at times
  double others_share = 0;  // of the host with most strangers; NaN where no host knows
  bool is_quiet = true;     // on every host
};
// Collective. `meter` (of no threads: ranks that wait for each other sleep at times) ran for `wall_s` seconds on every
// rank; the ranks of a host are no strangers to each other.
JobQuiet judge_job_quiet(Comm& comm, QuietMeter& meter, double wall_s);

}  // namespace rw
