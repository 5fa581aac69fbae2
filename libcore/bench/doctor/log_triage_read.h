// Reads logs once: which rules' lines they hold, where first, how often.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "libcore/bench/doctor/log_rules.h"
#include "libcore/bench/doctor/log_triage_line.h"

namespace rw {

struct LogHit {
  LogTime time;
  std::string file;  // below the folder
  int64_t line = 0;  // from 1
  std::string text;  // at most 300 bytes
  int64_t rank = -1;
  std::string host;
};

// All lines of one rule.
struct LogHits {
  const LogRule* rule = nullptr;
  int64_t count = 0;
  LogHit first;       // by time where lines have one, else as they were read
  double last_s = 0;  // the last by the wall clock; when first.time is one
  std::set<int64_t> ranks;
  std::set<std::string> hosts;  // at most 64 of each
};

struct LogReading {
  std::vector<LogHits> hits;  // of rules that have some
  int64_t files = 0, lines = 0, bytes = 0;
  std::vector<std::string> notes;
};

// `target`: a file, or a folder whose files are read in the order of their names. At most `max_bytes` of each.
LogReading read_logs(const std::filesystem::path& target, int64_t max_bytes);

}  // namespace rw
