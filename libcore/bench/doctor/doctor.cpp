#include "libcore/bench/doctor/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "libcore/bench/doctor/rehearsal.h"
#include "libcore/bench/doctor/training_facts.h"
#include "libcore/bench/doctor/training_rules.h"

namespace rw {
namespace {

std::string condition_text(const Condition& c) {
  switch (c.op) {
    case Condition::Op::above: return fmt::format("{} > {:g}", c.fact, c.threshold);
    case Condition::Op::below: return fmt::format("{} < {:g}", c.fact, c.threshold);
    case Condition::Op::present: return fmt::format("{} known", c.fact);
    case Condition::Op::absent: return fmt::format("no {}", c.fact);
  }
  return "";
}

bool is_cause(const Finding& f) { return f.effect_of.empty() && f.severity != Severity::info; }

std::string verdict_of(const Diagnosis& d) {
  const auto causes = std::count_if(d.findings.begin(), d.findings.end(), is_cause);
  if (causes == 0) return "nothing to complain of";
  const Finding& first = d.findings.front();
  std::string out = fmt::format("{}: {} ({}){}", severity_name(first.severity), first.id, layer_name(first.layer),
                                causes > 1 ? fmt::format(", and {} more", causes - 1) : "");
  // Requests that were turned away are what the users see, whatever their cause.
  for (const Finding& f : d.findings)
    if (!f.effect_of.empty() && f.severity != Severity::info && f.id.ends_with("_refusals"))
      out += "; " + f.explanation;
  return out;
}

}  // namespace

Diagnosis doctor_run(const RunRecords& run, const DoctorOptions& options) {
  Diagnosis d;
  d.target = run.dir.string();
  d.kind = "run";
  d.notes = run.notes;
  d.facts = training_facts(run);
  collect_token_facts(view_run(run), d.facts);
  collect_trouble(d.facts);
  std::vector<Rule> rules = training_rules();
  std::map<std::string, std::string> names = {{"dir", run.dir.string()}};
  if (run.steps.empty()) d.notes.push_back("no step is on record: only events and logs can be asked");
  if (const Fact* unread = d.facts.find("data.not_looked_at"); unread != nullptr)
    d.notes.push_back(
        fmt::format("not all data was looked at ({}): its repeats are sought in the batches alone", unread->text));
  else if (d.facts.find("data.repeated_windows") == nullptr)
    d.notes.push_back("run.json names no token files: repeats are sought in the batches alone");
  if (!options.baseline.empty()) {
    const Rehearsal rehearsal = compare_with_rehearsal(run, read_run_records(options.baseline));
    collect_rehearsal_facts(rehearsal, d.facts);
    for (const std::string& note : rehearsal_notes(rehearsal)) d.notes.push_back(note);
    const std::vector<Rule> more = rehearsal_rules();
    rules.insert(rules.end(), more.begin(), more.end());
    names["baseline"] = options.baseline.string();
  }
  d.findings = diagnose(rules, d.facts, names);
  // The run warned of them: silence would look as if they had been missed.
  for (const Finding& f : d.findings)
    if (f.id == "params.norm_spikes" && f.effect_of.empty()) d.notes.push_back(f.explanation);
  return d;
}

bool has_failure(const Diagnosis& diagnosis) {
  return std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                     [](const Finding& f) { return f.severity == Severity::failure; });
}

Json diagnosis_json(const Diagnosis& diagnosis) {
  Json findings = Json::array(), facts = Json::object();
  for (const Finding& f : diagnosis.findings) findings.push_back(finding_json(f));
  for (const auto& [name, fact] : diagnosis.facts.all()) {
    facts[name] = {{"value", std::isfinite(fact.value) ? Json(fact.value) : Json(nullptr)}};
    if (!fact.text.empty()) facts[name]["text"] = fact.text;
    if (!fact.where.empty()) facts[name]["where"] = fact.where;
  }
  return {{"target", diagnosis.target}, {"kind", diagnosis.kind}, {"verdict", verdict_of(diagnosis)},
          {"findings", findings},       {"facts", facts},         {"notes", diagnosis.notes}};
}

std::string diagnosis_text(const Diagnosis& diagnosis, DoctorText how) {
  // "run run" for a run in a folder of that name says nothing.
  const bool is_same = diagnosis.kind == diagnosis.target;
  std::string out =
      fmt::format("{}{}: {}\n", diagnosis.kind, is_same ? "" : " " + diagnosis.target, verdict_of(diagnosis));
  int64_t n_left_out = 0;
  for (const Finding& f : diagnosis.findings) {
    if (how == DoctorText::usual && !is_cause(f)) ++n_left_out;
    else out += "\n" + finding_text(f);
  }
  if (diagnosis.kind == "logs")
    if (const Fact* lines = diagnosis.facts.find("logs.lines"), *files = diagnosis.facts.find("logs.files");
        lines != nullptr && files != nullptr)
      out += fmt::format("\n{:.0f} lines of {:.0f} files were read\n", lines->value, files->value);
  if (!diagnosis.notes.empty()) out += "\n";
  for (const std::string& note : diagnosis.notes) out += fmt::format("note: {}\n", note);
  if (n_left_out > 0) out += fmt::format("\n{} more (effects and infos): --all shows them\n", n_left_out);
  return out;
}

std::string rules_markdown(const std::vector<Rule>& rules) {
  const auto cell = [](std::string text) {
    for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, 1, '\\');
    return text;
  };
  std::string out = "| rule | layer | severity | when | what to do |\n|---|---|---|---|---|\n";
  for (const Rule& r : rules) {
    std::string when, of;
    for (const Condition& c : r.when) when += (when.empty() ? "" : ", ") + condition_text(c);
    for (const char* id : r.effect_of) of += (of.empty() ? "; an effect of " : ", ") + fmt::format("`{}`", id);
    out += fmt::format("| `{}` | {} | {} | {}{} | {} |\n", r.id, layer_name(r.layer), severity_name(r.severity),
                       cell(when), of, cell(r.fix));
  }
  return out;
}

}  // namespace rw
