// What a rank can tell of its host without the others: from /proc and /sys below a root (tests give their own), from
// the process itself, from nvidia-smi and from hwloc.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/bench/preflight/rank_facts.h"
#include "libcore/telemetry/host_counters.h"

namespace rw {

// Interfaces, default route, TCP settings, link counters, /dev/shm apart; quota, governor, huge pages, load, memory.
void read_host(const std::filesystem::path& root, RankFacts& facts);

// The interface of the default route of least metric in /proc/net/route; "" for none.
std::string default_route_interface(const std::string& proc_net_route);
// Of `NAME=VALUE` texts those that change how a job runs, without what a launcher sets for each rank.
std::map<std::string, std::string> relevant_environment(const std::vector<std::string>& variables);
// Lines of nvidia-smi --query-gpu=name,memory.total,clocks.max.sm,ecc.errors.uncorrected.volatile.total,temperature.gpu
// --format=csv,noheader,nounits, and with ,pci.bus_id at the end; "[N/A]" is unknown; other lines are passed over.
std::vector<GpuState> parse_gpu_states(const std::string& csv);
// The share of CPU time that was stolen between two texts of /proc/stat; NaN when they do not tell.
double steal_share(const std::string& stat_before, const std::string& stat_after);

// This process: program, versions, environment, limits, cores, threads, room in /dev/shm, GPUs and what the PCI bus
// tells of them. Error{input} for a HWLOC_XMLFILE that cannot be read.
void read_process(RankFacts& facts);
// 16 MiB into a new file of `dir`, fsynced, removed again: speed, room, or why not.
void try_disk(const std::string& dir, RankFacts& facts);
// Seconds to wait for a resolver at most. Host name -> numeric address, "" where none is found in time.
std::map<std::string, std::string> resolve_hosts(const std::vector<std::string>& hosts, double timeout_s);

}  // namespace rw
