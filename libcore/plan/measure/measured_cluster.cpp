#include "libcore/plan/measure/measured_cluster.h"

#include <algorithm>

#include "libcore/base/error.h"
#include "libcore/comm/agree.h"

namespace rw {

Discovered measured_cluster(int threads, Comm& world) {
  CpuSpeed speed;
  agree(world, [&] {
    const std::vector<int> nodes = world.nodes();
    if (std::count(nodes.begin(), nodes.end(), nodes[0]) != world.size())
      fail(ErrorKind::usage,
           "ranks on several hosts need --cluster, a cluster file: the network between hosts is not measured here");
    speed = measure_cpu_speed({.ranks = 1, .threads = threads});
  });
  for (double CpuSpeed::*number : kSlowestCounts) speed.*number = world.all_reduce_value(speed.*number, ReduceOp::min);
  speed.cpu_share = world.all_reduce_value(speed.cpu_share, ReduceOp::min);
  speed.launch_s = world.all_reduce_value(speed.launch_s, ReduceOp::max);
  return cpu_cluster({.host = this_host(), .cores = {.ranks = world.size(), .threads = threads}, .speed = speed});
}

}  // namespace rw
