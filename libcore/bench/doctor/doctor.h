// `dbench doctor`: facts from records of a run, a server or a folder of logs; findings by rules (finding.h).
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "libcore/bench/doctor/finding.h"
#include "libcore/bench/record/run_records.h"

namespace rw {

struct Diagnosis {
  std::string target, kind;  // a folder or URL; "run", "server" or "logs"
  Facts facts;
  std::vector<Finding> findings;   // as diagnose() orders them, all of them
  std::vector<std::string> notes;  // for people: what could not be read, what is not known
};

struct DoctorOptions {
  std::filesystem::path baseline;  // a small run of the same thing that went well; "" without
};

// A training run. Error{input}: the baseline cannot be read.
Diagnosis doctor_run(const RunRecords& run, const DoctorOptions& options);

bool has_failure(const Diagnosis& diagnosis);
Json diagnosis_json(const Diagnosis& diagnosis);  // {target, kind, verdict, findings, facts, notes}
// Verdict line first, then what was found. Without `all`, effects and findings of severity info are left out (and
// counted).
enum class DoctorText : uint8_t { usual, all };
std::string diagnosis_text(const Diagnosis& diagnosis, DoctorText how);
// A table of rules for the docs: id, layer, severity, when, what it says, what to do.
std::string rules_markdown(const std::vector<Rule>& rules);

}  // namespace rw
