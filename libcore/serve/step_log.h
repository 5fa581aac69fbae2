// The engine's event log: what the scheduler was told and what it planned, a JSON line each, so that a replay can ask a
// fresh scheduler for the same plans.
#pragma once
#include <filesystem>

#include "libcore/serve/scheduler.h"
#include "libcore/telemetry/json_lines.h"

namespace rw {

class StepLog {
 public:
  StepLog() = default;  // writes nothing
  StepLog(const std::filesystem::path& file, const SchedulerSpec& spec);
  void arrival(const Arrival& arrival);
  void end(SequenceId id);
  void plan(const StepPlan& plan);
  void outcome(const StepOutcome& outcome);
  void keep(SequenceId id);
  void release(int64_t handle);

 private:
  void write(const Json& line);

  std::filesystem::path file_;
  JsonLines lines_;
  bool on_ = false;
};

struct ReplayReport {
  int64_t steps = 0, arrivals = 0, ends = 0, preemptions = 0, prefill_tokens = 0, decode_tokens = 0;
  int64_t first_difference = -1;  // line of the log; -1: all plans are equal
  std::string expected, found;    // the plans there, as JSON
  double model_s = 0;             // seconds of the logged steps
  bool torn = false;              // the last line is half a line
};
// Runs the scheduler over a log, of one server's life or of several. Error{input} names file and line of what is not a
// log.
ReplayReport replay(const std::filesystem::path& log);

}  // namespace rw
