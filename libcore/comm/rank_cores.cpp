#include "libcore/comm/rank_cores.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>

namespace rw {
namespace {

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

int ranks_of_host(const Comm& world) {
  const std::vector<std::string> hosts = world.hosts();
  return static_cast<int>(std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(world.rank())]));
}

int rank_on_host(const Comm& world) {
  const std::vector<std::string> hosts = world.hosts();
  const auto me = hosts.begin() + world.rank();
  return static_cast<int>(std::count(hosts.begin(), me, *me));
}

int online_cores() { return static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN))); }

int idle_cores(int threads, const Comm& world) {
  if (allowed_cores() == online_cores()) return 0;
  return std::max(0, online_cores() - threads * ranks_of_host(world));
}

int threads_per_rank(int64_t asked, const Comm& world) {
  if (asked > 0) return static_cast<int>(asked);
  const int cores = allowed_cores();
  const int on_host = ranks_of_host(world);
  // A rank that mpirun bound to its own cores has them to itself; otherwise all see the same set.
  return std::max(1, cores * on_host <= online_cores() ? cores : cores / on_host);
}

}  // namespace rw
