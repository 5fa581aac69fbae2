// The resource record of a host: one light thread that writes a line of JSON a second, the evidence for what slowed a
// run down.
#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/telemetry/host_counters.h"

namespace rw {

struct ResourceOptions {
  std::filesystem::path file;  // resources.jsonl, appended to
  std::string host;
  double interval_s = 1.0;
  std::vector<int64_t> pids;  // whose resident memory is recorded, besides this process
  std::filesystem::path proc = "/proc", sys = "/sys";
};

// Files that cannot be read leave their values empty. Never throws.
HostCounters read_host_counters(const ResourceOptions& options);

// Samples while it lives; joins its thread when it goes, after one last line. A line: {"time" (UTC, as in
// events.jsonl), "clock_s" (now_s(), as in the watchdog's files), "step", "host", ...resource_line()}. Nothing that
// goes wrong in the thread leaves it, not even a full disk; signals are left to the other threads.
class ResourceSampler {
 public:
  // `step`, when given, outlives this: the trainer keeps its current step there. Error{runtime} when the file cannot be
  // opened.
  ResourceSampler(const ResourceOptions& options, const std::atomic<int64_t>* step);
  ~ResourceSampler();
  ResourceSampler(const ResourceSampler&) = delete;
  ResourceSampler& operator=(const ResourceSampler&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rw
