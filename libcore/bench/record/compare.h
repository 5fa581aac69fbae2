// `dbench compare`: are new measurements as good as the old ones?
//
// Records are matched by (bench, name), metrics by name. Times are judged statistically (judge_change), counts exactly:
// a count that changed to the bad side is a regression by itself. Several records of one case are runs of it: then a
// run is a sample, the median of its samples, because samples of one run share its start, its memory and its
// neighbours, and differ less than runs do. When many metrics are judged at once, some look changed by luck: the time
// metrics of a comparison together are held to control_false_discoveries, so that a file of unchanged ones alarms with
// at most 1 - confidence.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libcore/base/fields.h"
#include "libcore/base/json.h"
#include "libcore/bench/record/bench_record.h"
#include "libcore/bench/record/statistics.h"

namespace rw {

struct CompareSpec {
  std::vector<std::string> metric;  // prefixes of names, or globs
  std::vector<std::string> pair;    // BASE=NEW: names of cases that are compared though they differ
  std::string threshold = "5%";
  double confidence = 0.95;
  bool paired = false;       // sample (run) i of both were taken side by side
  bool any_machine = false;  // else Error{input} when the fingerprints differ
  bool noisy = false;        // believe records of a machine that was not quiet
  std::string counts = "exact";
  int64_t seed = 1;
};
FieldList fields(CompareSpec& spec);
double parse_threshold(const std::string& text);  // "5%" and "0.05" -> 0.05; Error{usage}

struct MetricChange {
  std::string name, unit;
  MetricKind kind = MetricKind::time;
  Change change;  // of a fact: the medians alone
};
struct CaseChange {
  std::string bench, name;
  int64_t runs_base = 0, runs_now = 0;
  std::vector<MetricChange> metrics;
  std::vector<std::string> missing, added;  // metrics that only base has, only the new records have
  std::vector<std::string> notes;           // for people: other machine, not quiet, other flags
};
struct Comparison {
  std::string base, now;  // what they are called: files
  std::vector<CaseChange> cases;
  std::vector<std::string> missing, added;  // cases: `train "tiny-llama"`
  int64_t count(ChangeVerdict verdict) const;
  bool has_regression() const { return count(ChangeVerdict::worse) > 0; }
};

std::string listed(const std::vector<std::string>& names, const char* between = ", ");  // "a, b, c"; "none" of none
std::string case_name(const BenchRecord& record);                                       // `train "tiny-llama tp 2"`
std::string machine_of(const BenchRecord& record, const char* key);  // a value of its machine as text; "" when absent

// Error{input}: no case or no metric in common; a metric whose unit, kind or better way differs among the records;
// records of different machines (unless any_machine); with `paired`,
// unequally many samples.
Comparison compare_records(const std::vector<BenchRecord>& base, const std::vector<BenchRecord>& now,
                           const CompareSpec& spec);

struct CompareView {
  bool facts = false;  // show them too
};
std::string comparison_text(const Comparison& comparison, const CompareView& view);
Json comparison_json(const Comparison& comparison);
// One line for people, of all comparisons.
std::string comparison_summary(const std::vector<Comparison>& comparisons);

}  // namespace rw
