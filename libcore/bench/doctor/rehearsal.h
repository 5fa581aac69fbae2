// A failing run beside its small rehearsal, one that went well: what differs, and what was never seen there. Pure.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "libcore/bench/doctor/finding.h"
#include "libcore/bench/record/run_records.h"

namespace rw {

struct MetricChange {
  std::string name;            // "communication share of a step"
  double before = 0, now = 0;  // medians of the settled steps; the rehearsal's, this run's
};
struct NewLine {
  std::string kind;  // numbers and names of places stripped
  std::string line;  // the first of its kind, whole
  int64_t n = 0;
};
struct ConfigChange {
  std::string key, before, now;  // "" where it has no such key
};
struct Rehearsal {
  std::vector<MetricChange> metrics;  // that differ by as much as below, largest factor first
  std::vector<NewLine> events, log;   // not seen in the rehearsal, most frequent first
  std::vector<ConfigChange> config;
};
// Shares of a step differ when one is this much of a step larger; rates when one is this factor of the other. A
// rehearsal is smaller: times themselves are not compared.
constexpr double kShareChange = 0.1, kRateChange = 1.3;

Rehearsal compare_with_rehearsal(const RunRecords& run, const RunRecords& rehearsal);
// Facts baseline.*, and the rules that ask for them.
void collect_rehearsal_facts(const Rehearsal& rehearsal, Facts& facts);
std::vector<Rule> rehearsal_rules();
std::vector<std::string> rehearsal_notes(const Rehearsal& rehearsal);  // all of it for people, a line each
// A line without what varies from run to run: numbers become #, hexadecimal ids and paths too.
std::string without_numbers(const std::string& line);

}  // namespace rw
