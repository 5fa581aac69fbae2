#include "libcore/bench/comm/job_quiet.h"

#include <cmath>
#include <limits>
#include <vector>

namespace rw {

JobQuiet judge_job_quiet(Comm& comm, QuietMeter& meter, double wall_s) {
  const double cpu_s = meter.cpu_s();
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.all_gather(&cpu_s, all.data(), sizeof cpu_s);
  const std::vector<std::string> hosts = comm.hosts();
  const auto me = static_cast<size_t>(comm.rank());
  for (size_t r = 0; r < all.size(); ++r)
    if (r != me && hosts[r] == hosts[me]) meter.count_as_ours(all[r]);
  const double others = meter.others_share(), share = wall_s > 0 ? cpu_s / wall_s : 1;
  JobQuiet quiet;
  quiet.cpu_share = comm.all_reduce_value(share, ReduceOp::min);
  const double worst = comm.all_reduce_value(std::isnan(others) ? -1.0 : others, ReduceOp::max);
  quiet.others_share = worst < 0 ? std::numeric_limits<double>::quiet_NaN() : worst;
  quiet.is_quiet = comm.all_reduce_value(int64_t{meter.is_quiet()}, ReduceOp::min) != 0;
  return quiet;
}

}  // namespace rw
