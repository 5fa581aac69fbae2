// A trace for Perfetto or chrome://tracing: a JSON array of events, written as they come. The format makes the closing
// bracket optional, so a killed process leaves a file that loads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "libcore/base/json.h"

namespace rw {

// The first row that is free from start_s on, for a bar until end_s that must not overlap others; `ends` has when each
// row's last bar ends.
int64_t free_row(std::vector<double>& ends, double start_s, double end_s);

class ChromeTrace {
 public:
  // Error{runtime} when the file cannot be made. `process`: what the viewer calls it.
  ChromeTrace(const std::filesystem::path& file, const std::string& process);
  ChromeTrace(const ChromeTrace&) = delete;
  ChromeTrace& operator=(const ChromeTrace&) = delete;
  ~ChromeTrace();  // closes the array
  struct Event {
    std::string name;
    double start_s, end_s;  // one clock for the whole file
    int64_t row;            // events of a row follow one another or nest
    const Json* args = nullptr;
    int64_t process = 1;
    std::string process_name = "", row_name = "";  // told to the viewer once; "": it has or needs none
  };
  // All of them, or none that is torn; returns false, and keeps quiet, when the disk is full.
  bool write(const std::vector<Event>& events);

 private:
  bool append(const std::string& text);
  int fd_ = -1;
  std::set<std::pair<int64_t, int64_t>> named_;  // processes (with row -1) and their rows
};

}  // namespace rw
