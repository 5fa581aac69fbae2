// The report's sections: records in, HTML out. Each says what is missing instead of showing nothing. `id` makes the
// section's anchor unique on the page.
#pragma once
#include <string>
#include <vector>

#include "libcore/base/json.h"
#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/record/run_records.h"

namespace rw {

// A run with what names it.
struct ReportRun {
  RunRecords records;
  std::string label;      // unique on the page
  std::string diagnosis;  // JSON text of dbench doctor; "": not asked
};

// What the run is, and its numbers in short.
std::string identity_section(const std::string& id, const RunRecords& run);
std::string headline_section(const std::string& id, const RunRecords& run);
// Loss with what happened, learning rate, gradient norm.
std::string curves_section(const std::string& id, const RunRecords& run);
// Throughput, step time, its parts; communication exposed and in all, with bytes.
std::string time_section(const std::string& id, const RunRecords& run);
// The pipeline's step: the schedule of the layout with the measured means. "" without a pipeline.
std::string pipeline_section(const std::string& id, const RunRecords& run);
std::string memory_section(const std::string& id, const RunRecords& run);
// "" when the run had no prediction.
std::string predicted_section(const std::string& id, const RunRecords& run);
// What the hosts did meanwhile.
std::string resources_section(const std::string& id, const RunRecords& run);
// Events worth reading, and what could not be read.
std::string events_section(const std::string& id, const RunRecords& run);
std::string findings_section(const std::string& id, const std::string& diagnosis);

// Several runs on top of one another, and in which they differ.
std::string compare_section(const std::vector<ReportRun>& runs);
// Latency distributions and rates of `dbench serve` records.
std::string serve_section(const std::vector<BenchRecord>& records);
// Any other records: medians beside predictions and limits.
std::string bench_section(const std::vector<BenchRecord>& records);

// The numbers of a run in short, by name, as the headline and the comparison show them; "-" where not known.
struct Headline {
  std::string name, value, note;
};
std::vector<Headline> headline_of(const RunRecords& run);

// run.json as an object; an empty one where there is none or it is no object.
Json identity_json(const RunRecords& run);
// The scalar under a path of keys as text; "" when it is not there.
std::string text_at(const Json& json, std::initializer_list<const char*> path);
// All scalars of an object by dotted path, arrays as their JSON text.
std::vector<std::pair<std::string, std::string>> flattened(const Json& json);

}  // namespace rw
