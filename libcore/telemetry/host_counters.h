// What a Linux host says about itself under /proc and /sys: pure functions from the files' text. Text that is cut off
// or not what was expected gives fewer values, never an error: a missing number is evidence too.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "libcore/base/json.h"

namespace rw {

// Counters since the host started, in ticks of all CPUs together.
struct CpuTicks {
  int64_t busy = 0, idle = 0, io_wait = 0, steal = 0;
  int64_t total() const { return busy + idle + io_wait + steal; }
  bool operator==(const CpuTicks&) const = default;
};
struct LoadAverage {
  double one_minute = 0;
  int64_t running = 0;  // threads that run or wait for a CPU now
  bool operator==(const LoadAverage&) const = default;
};
struct MemoryBytes {
  int64_t total = 0, available = 0, dirty = 0, swap_used = 0;
  bool operator==(const MemoryBytes&) const = default;
};
struct InterfaceCounters {
  int64_t received_bytes = 0, sent_bytes = 0, received_dropped = 0, sent_dropped = 0, errors = 0;
  bool operator==(const InterfaceCounters&) const = default;
};
struct DiskCounters {
  int64_t read_bytes = 0, written_bytes = 0, busy_ms = 0;
  bool operator==(const DiskCounters&) const = default;
};

std::optional<CpuTicks> parse_cpu_ticks(std::string_view proc_stat);
int64_t parse_cpu_count(std::string_view proc_stat);
std::optional<LoadAverage> parse_load_average(std::string_view proc_loadavg);
std::optional<MemoryBytes> parse_memory(std::string_view proc_meminfo);
std::map<std::string, InterfaceCounters> parse_interfaces(std::string_view proc_net_dev);  // by name
std::optional<int64_t> parse_tcp_retransmits(std::string_view proc_net_snmp);  // segments; Linux counts per host only
// Whole disks by name: no partitions (their disk has them), no loop and RAM devices.
std::map<std::string, DiskCounters> parse_disks(std::string_view proc_diskstats);
std::optional<int64_t> parse_resident_bytes(std::string_view proc_pid_status);
std::optional<double> parse_clock_mhz(std::string_view scaling_cur_freq);

// All of it at one moment.
struct HostCounters {
  std::optional<CpuTicks> cpu;
  int64_t cpus = 0;
  std::optional<LoadAverage> load;
  std::optional<MemoryBytes> memory;
  std::map<std::string, InterfaceCounters> interfaces;
  std::optional<int64_t> tcp_retransmits;
  std::map<std::string, DiskCounters> disks;
  std::map<int64_t, int64_t> resident_bytes;     // by process id
  double clock_mhz_mean = 0, clock_mhz_min = 0;  // of the CPUs that say; 0: none does
};
// What happened in the `seconds` between two moments: shares of CPU time, bytes, retransmits; and how things stood at
// the second. What either moment lacks is left out; a counter that went back (a device that was replaced) counts as 0.
Json resource_line(const HostCounters& before, const HostCounters& after, double seconds);

}  // namespace rw
