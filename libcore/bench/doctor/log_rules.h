// What failures look like in logs, as data: of our own tools, of launchers, of communication libraries, of the kernel.
#pragma once
#include <cstdint>
#include <vector>

#include "libcore/bench/doctor/finding.h"

namespace rw {

// Who writes such a line; in the order they are asked, so that a later one is nearer to the machine.
enum class LogSource : uint8_t { task, node, library, kernel };
const char* log_source_name(LogSource source);  // "task", "node", "communication library", "kernel log"

// How far from a cause: what broke by itself; a process that ended; what its peers saw of it; what the launcher made of
// that. A finding is the effect of one nearer to a cause that did not come later.
enum class LogDepth : uint8_t { cause, death, peer, summary };

// A line fits when it holds `find` and all of `also`, and none of `without`: lower case, anywhere, in any order.
struct LogForm {
  const char* find;
  std::vector<const char*> also = {};
  std::vector<const char*> without = {};
};
struct LogRule {
  const char* id;
  LogSource source;
  LogDepth depth;
  Layer layer;
  Severity severity;
  double confidence;
  std::vector<LogForm> forms;
  const char* explanation;
  const char* fix;
  const char* next;  // {dir}: the logs' folder
  // Besides what the depth says: rules of the same depth that explain this one.
  std::vector<const char*> effect_of = {};
};

const std::vector<LogRule>& log_rules();
// Parts of it.
std::vector<LogRule> library_log_rules();
std::vector<LogRule> kernel_log_rules();

// Of an exception whose text fits no rule, and of one of our own tools' errors that does not: a rule's id each.
inline constexpr const char* kTracebackRule = "task.traceback";
inline constexpr const char* kToolErrorRule = "task.error";

}  // namespace rw
