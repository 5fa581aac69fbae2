// A step as a picture: what each rank did when, in trace.json of the run directory, for Perfetto or chrome://tracing.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "libcore/comm/watch.h"
#include "libcore/schedule/pipeline.h"
#include "libcore/telemetry/chrome_trace.h"

namespace rw {

// --trace-steps: the first and the last that are drawn.
struct TraceSteps {
  int64_t first = 0, last = -1;
  bool holds(int64_t step) const { return first <= step && step <= last; }
};
// "10" or "10..12"; "" is none. Error{usage} names the flag.
TraceSteps parse_trace_steps(const std::string& text);

// What one rank did in a step: the step's phases, one after the other, the pipeline's actions, the communicators'
// operations from their start until they were seen to be done.
class StepTrace {
 public:
  explicit StepTrace(CommRecord& record);  // listens to it until destroyed
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;
  ~StepTrace();

  void phase(const std::string& name);  // ends the one before it; "": ends the last
  void add(const std::vector<TimedAction>& actions);
  // All ranks' on rank 0, "" on the others: JSON. Collective.
  std::vector<std::string> collect(Comm& world) const;
  std::string text() const;

 private:
  struct Phase {
    std::string name;
    double begin_s, end_s;
  };
  CommRecord& record_;
  double zero_s_;
  std::vector<Phase> phases_;
  std::vector<TimedAction> actions_;
  std::vector<CommOp> operations_;
};

// Draws the ranks' texts: a process a rank, with a row for the phases, one for the pipeline, and for each group as many
// as its operations need that are under way at the same time. Ranks of a host share a clock; other hosts' clocks are
// set by the barrier that began the step. Seconds count from `zero_s` of rank 0's clock. False when the disk is full.
bool draw_traces(ChromeTrace& trace, const std::vector<std::string>& texts, double zero_s);

}  // namespace rw
