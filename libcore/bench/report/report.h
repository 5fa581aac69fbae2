// `dbench report`: everything a run left behind on one page that needs nothing else.
#pragma once
#include <string>
#include <vector>

#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/report/sections.h"

namespace rw {

struct ReportInputs {
  std::string title;  // "": from the runs
  std::vector<ReportRun> runs;
  std::vector<BenchRecord> bench;
  std::vector<BenchRecord> serve;  // of `dbench serve`
  std::string made;                // UTC
};

// An HTML document in UTF-8 with its style and pictures in it: no script, no request. Below 2 MB for a run of 100,000
// steps: lines are decimated with every spike kept (envelope.h).
std::string report_html(const ReportInputs& inputs);

// Labels that differ: the folders' names, with as much of their paths as that takes.
std::vector<std::string> run_labels(const std::vector<std::filesystem::path>& dirs);

}  // namespace rw
